"""A cloud in memory: for tests and the demo. Deterministic; it fails only as its script says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import RLock

from bursting.clouds.faults import Faults, Verb, When
from bursting.clouds.port import (
    CapacityUnavailable,
    CloudUnavailable,
    Instance,
    InstanceNotVisible,
    Interruption,
    LaunchRefused,
    PriceAboveCap,
    QuotaExceeded,
    TokenReused,
)
from bursting.clouds.prices import PriceList
from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec
from ledger.domain.money import Money

Pairs = tuple[tuple[str, str], ...]
Terms = tuple[InstanceSpec, Pairs, timedelta, Pairs]


@dataclass(slots=True)
class _Rented:
    instance: Instance
    terms: Terms
    ends_at: datetime
    """When the cloud ends it by itself: launch plus ttl."""
    price: InstancePrice
    is_ended: bool = False
    ended_at: datetime | None = None


@dataclass(slots=True)
class FakeCloud:
    """Rents what `catalogue` lists. Safe for threads of one process; forgets all at its end.

    clock: the cloud's own time, for launch times and the end after `ttl`.
    remembers: how long machines that have ended stay in its lists; None: for ever.
    """

    catalogue: Sequence[CloudOffer]
    clock: Callable[[], datetime]
    name: str = "fake"
    faults: Faults = field(default_factory=Faults)
    remembers: timedelta | None = None
    _rented: dict[str, _Rented] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def offers(self, need: GpuNeed, /) -> Sequence[CloudOffer]:
        """Return the entries of the catalogue that serve `need`, cheapest per GPU first."""
        with self._lock:
            self._answer("offers", self._called("offers"))
            serving = [offer for offer in self.catalogue if offer.serves(need)]
            return sorted(serving, key=lambda offer: (offer.nanos_per_gpu_hour, offer.spec))

    def launch(
        self,
        spec: InstanceSpec,
        *,
        token: str,
        tags: Mapping[str, str],
        ttl: timedelta,
        max_price: InstancePrice,
        environment: Mapping[str, str],
    ) -> Instance:
        """Start one instance for `token`, or return the one it started before."""
        with self._lock:
            failure = self._called("launch")
            terms = (spec, _sorted(tags), ttl, _sorted(environment))
            rented = self._with_token(token)
            if rented is None:
                rented = self._start(spec, token, terms, max_price)
            elif rented.terms != terms:
                raise TokenReused("this token launched an instance with other terms")
            elif rented.is_ended:
                raise TokenReused("this token launched an instance that has ended")
            self._answer("launch", failure)
            return self._shown(rented)

    def find(
        self, *, token: str | None = None, tags: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        """Return what is rented under that token and with those tags, as far as it is seen yet."""
        with self._lock:
            self._answer("find", self._called("find"))
            wanted = (tags or {}).items()
            return self._look(
                rented
                for rented in self._rented.values()
                if token in (None, rented.instance.token) and wanted <= rented.instance.tags.items()
            )

    def describe(self, instance_ids: Sequence[str], /) -> Sequence[Instance]:
        """Return those of the given instances that are seen by now."""
        with self._lock:
            self._answer("describe", self._called("describe"))
            return self._look(self._rented[key] for key in instance_ids if key in self._rented)

    def terminate(self, instance_id: str, /) -> None:
        """End an instance that is seen by now."""
        with self._lock:
            failure = self._called("terminate")
            self._end_overdue()
            if instance_id not in self._rented or self.faults.is_invisible(instance_id):
                raise InstanceNotVisible(instance_id)
            self._rented[instance_id].is_ended = True
            self._end_overdue()
            self._answer("terminate", failure)

    def interruptions(self) -> Sequence[Interruption]:
        """Return the scripted notices of instances that still live."""
        with self._lock:
            self._answer("interruptions", self._called("interruptions"))
            self._end_overdue()
            alive = {key for key, rented in self._rented.items() if not rented.is_ended}
            return sorted(
                (n for n in self.faults.notices if n.instance_id in alive), key=lambda n: n.at
            )

    def environment_of(self, instance_id: str) -> Mapping[str, str]:
        """Return what was given to an instance at launch, for whoever plays its machine."""
        with self._lock:
            return dict(self._rented[instance_id].terms[3])

    def bill(self) -> dict[str, Money]:
        """Return what each machine ever started has cost by now: the cloud's own account of it."""
        with self._lock:
            self._end_overdue()
            now = self.clock()
            return {
                key: rented.price.cost((rented.ended_at or now) - rented.instance.launched_at)
                for key, rented in self._rented.items()
            }

    def _start(
        self, spec: InstanceSpec, token: str, terms: Terms, max_price: InstancePrice
    ) -> _Rented:
        offer = next((o for o in self.catalogue if o.spec == spec), None)
        if offer is None:
            raise LaunchRefused(f"no such type in that zone: {spec}")
        if (
            offer.price.currency != max_price.currency
            or offer.price.nanos_per_instance_hour > max_price.nanos_per_instance_hour
        ):
            raise PriceAboveCap(f"{offer.price} is above {max_price}")
        alive = sum(not rented.is_ended for rented in self._rented.values())
        if self.faults.quota is not None and alive >= self.faults.quota:
            raise QuotaExceeded(f"{alive} instances are alive already")
        if not self.faults.take_room(spec.zone):
            raise CapacityUnavailable(f"nothing left in {spec.zone}")
        now = self.clock()
        handed = self.faults.hand_out(offer)
        instance = Instance(
            instance_id=f"{self.name}-{len(self._rented) + 1:06d}",
            spec=handed.spec,
            gpus=handed.gpus,
            state="running",
            launched_at=now,
            tags=dict(terms[1]),
            token=token,
            gpu_model=handed.gpu_model,
            price=handed.price,
        )
        self.faults.born(instance.instance_id)
        rented = _Rented(instance, terms, ends_at=now + terms[2], price=handed.price)
        self._rented[instance.instance_id] = rented
        return rented

    def _called(self, verb: Verb) -> When | None:
        """Count a call; fail here if it shall fail before it takes effect."""
        failure = self.faults.called(verb)
        if failure == "before":
            self._answer(verb, failure)
        return failure

    def _answer(self, verb: Verb, failure: When | None) -> None:
        if failure is not None:
            raise CloudUnavailable(
                f"scripted failure of {verb}", retryable=True, outcome_unknown=True
            )

    def _with_token(self, token: str) -> _Rented | None:
        self._end_overdue()
        return next((r for r in self._rented.values() if r.instance.token == token), None)

    def _end_overdue(self) -> None:
        now = self.clock()
        for rented in self._rented.values():
            if rented.ended_at is not None:
                continue
            if rented.ends_at <= now:
                rented.is_ended = True
            if rented.is_ended:
                rented.ended_at = min(now, rented.ends_at)

    def _look(self, chosen: Iterable[_Rented]) -> Sequence[Instance]:
        self._end_overdue()
        seen = [
            self._shown(rented)
            for rented in chosen
            if not self.faults.is_invisible(rented.instance.instance_id)
            and not self._is_forgotten(rented)
        ]
        self.faults.poll({key for key, rented in self._rented.items() if rented.is_ended})
        return seen

    def _is_forgotten(self, rented: _Rented) -> bool:
        if self.remembers is None or rented.ended_at is None:
            return False
        return self.clock() >= rented.ended_at + self.remembers

    def _shown(self, rented: _Rented) -> Instance:
        instance_id = rented.instance.instance_id
        if rented.is_ended:
            if self.faults.is_lingering(instance_id):
                return replace(rented.instance, state="terminating")
            return replace(rented.instance, state="terminated", ended_at=rented.ended_at)
        if self.faults.is_pending(instance_id):
            return replace(rented.instance, state="pending")
        return rented.instance


def _sorted(pairs: Mapping[str, str]) -> Pairs:
    return tuple(sorted(pairs.items()))


def catalogue_of(
    prices: PriceList, *, cloud: str = "fake", region: str, zones: Sequence[str]
) -> list[CloudOffer]:
    """Return every type of a price list in each of `zones`, on demand."""
    return [
        kind.offer(
            cloud=cloud,
            region=region,
            spec=InstanceSpec(instance_type=kind.instance_type, zone=zone),
            price=kind.price,
        )
        for kind in prices.types.values()
        for zone in zones
    ]
