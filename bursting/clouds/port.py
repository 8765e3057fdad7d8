"""What a cloud promises, and the ways in which it may fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, Protocol

from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec

CloudState = Literal["pending", "running", "terminating", "terminated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A rented machine as the cloud tells it.

    All of it is the cloud's own word, never what was asked for.

    state: `terminating` also stands for an instance that somebody stopped: it does no work any
        more, still costs something, and does not end by itself.
    token: the one given at launch; None where the instance carries none.
    gpu_model: in the cloud's words; empty where it says nothing of it.
    price: what the whole instance costs; None where the cloud cannot tell.
    ended_at: when it ceased to cost anything; None while it runs, and where the cloud cannot tell.
    """

    instance_id: str
    spec: InstanceSpec
    gpus: int
    state: CloudState
    launched_at: datetime
    tags: Mapping[str, str]
    token: str | None
    gpu_model: str = ""
    price: InstancePrice | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """The cloud's warning that it takes an instance back. `at` is when, as far as it says."""

    instance_id: str
    at: datetime
    reason: str


class CloudTrouble(Exception):
    """A cloud did not do what was asked of it; the subclass says what that means for us."""


class CapacityUnavailable(CloudTrouble):
    """There is none of this kind in this zone at present; another zone or a later try may do."""


class QuotaExceeded(CloudTrouble):
    """Our account may have no more of this kind. Waiting does not help, ending one does."""


class LaunchRefused(CloudTrouble):
    """The cloud will never accept this launch as it is asked."""


class PriceAboveCap(CloudTrouble):
    """The instance costs more now than the given cap."""


class TokenReused(CloudTrouble):
    """The token was used before: with other terms, or for an instance that has ended since."""


class InstanceNotVisible(CloudTrouble):
    """The cloud knows no instance of that id: it has not seen it yet, or forgot it long ago."""


class CloudUnavailable(CloudTrouble):
    """The cloud gave no answer, or one that says nothing.

    retryable: whether the same request may succeed later without anybody changing something
        (false: credentials, permissions).
    outcome_unknown: whether the request may have taken effect all the same. Then only the same
        request with the same token may follow.
    """

    def __init__(self, message: str, *, retryable: bool, outcome_unknown: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.outcome_unknown = outcome_unknown


class CloudProvider(Protocol):
    """A cloud that rents GPU machines by the hour. `tests/contracts/clouds` holds each to this.

    Any method may raise CloudUnavailable. What a cloud lists may lag behind what it did: an
    instance that `launch` returned may be absent from `find` and `describe` for a while.
    """

    @property
    def name(self) -> str:
        """The short word that events, tags and pages call this cloud by."""
        ...

    def offers(self, need: GpuNeed, /) -> Sequence[CloudOffer]:
        """Return what would serve `need`, cheapest per GPU first; empty where nothing would."""
        ...

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
        """Start one instance, once for each `token`, tagged from its first moment.

        What boots on it finds `environment` set: where the market is, and as which host to report.

        What it returns is what the cloud started, which may be another machine than was asked
        for: type, GPUs, zone, class and price are for the caller to compare.

        The same token with the same terms returns the same instance, however often it is asked
        and whatever became of earlier answers. The cloud itself ends the instance after `ttl`,
        should we be gone by then.

        Raises:
            CapacityUnavailable, QuotaExceeded, LaunchRefused, PriceAboveCap: nothing was started.
            TokenReused: nothing was started; see there.
            CloudUnavailable: see its `outcome_unknown`.
        """
        ...

    def find(
        self, *, token: str | None = None, tags: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        """Return the instances with that token and all those tags, oldest first.

        Instances that have ended stay in the list as long as the cloud remembers them.
        """
        ...

    def describe(self, instance_ids: Sequence[str], /) -> Sequence[Instance]:
        """Return those of the given instances that the cloud shows, in the order asked."""
        ...

    def terminate(self, instance_id: str, /) -> None:
        """Ask for the end of an instance; a second time is fine. `describe` tells when it is so.

        Raises:
            InstanceNotVisible: ask again until it is seen, or its age tells that it is gone.
        """
        ...

    def interruptions(self) -> Sequence[Interruption]:
        """Return the warnings in force, soonest first."""
        ...
