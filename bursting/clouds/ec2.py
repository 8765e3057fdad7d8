"""Amazon EC2, and whatever speaks its API.

The nets that keep a machine from running on unseen, from the inside out: a client token on each
launch, so that one intent starts one instance; tags in the launch call itself, so that the reaper
finds it whatever became of the answer; a shutdown timer in the machine, which terminates it.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from bursting.clouds.ec2_answers import (
    RETIREMENTS,
    SPOT_ENDINGS,
    STATES,
    ended_at,
    nanos_up,
    retirements,
    spot_endings,
)
from bursting.clouds.ec2_errors import explain
from bursting.clouds.port import (
    CloudUnavailable,
    Instance,
    Interruption,
    LaunchRefused,
    PriceAboveCap,
)
from bursting.clouds.prices import PriceList, read_price_list
from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec
from ledger.domain.money import decimal_of

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

TOKEN_TAG = "offpeak:token"
PAGES_MAX = 100
PAGE_SIZE = 100
BACKOFF_SECONDS = 0.5
SPOT_PRICE_LIFE = timedelta(minutes=5)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Settings:
    """Where to launch, and from what.

    Without keys boto3's own chain is asked (environment, profile, instance role).
    """

    image_id: str
    region: str = "us-east-1"
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    security_group_ids: tuple[str, ...] = ()
    subnet_ids: Mapping[str, str] = field(default_factory=dict)
    """The subnet of each zone; a zone that is not named uses the account's default one."""
    instance_profile_arn: str | None = None
    boot_script: str = ""
    """Shell lines that start the agent, run once at first boot, after the shutdown timer is set."""
    timeout_seconds: int = 20
    attempts_max: int = 3

    def __post_init__(self) -> None:
        assert self.attempts_max > 0
        assert self.timeout_seconds > 0


class Ec2Cloud:
    """EC2 in one region. Safe for threads, as boto3's clients are."""

    name = "ec2"

    def __init__(
        self,
        settings: Ec2Settings,
        *,
        prices: PriceList | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._settings = settings
        self._prices = prices or read_price_list()
        self._clock = clock
        self._wait = wait
        self._gpus_of_type = {
            name: (kind.gpus, kind.gpu_model) for name, kind in self._prices.types.items()
        }
        self._spot: dict[InstanceSpec, tuple[datetime, InstancePrice | None]] = {}
        # Attempts are counted in `_ask`: boto3's own would retry for want of capacity as well.
        self._client: EC2Client = boto3.client(
            "ec2",
            region_name=settings.region,
            endpoint_url=settings.endpoint_url,
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=settings.timeout_seconds,
                read_timeout=settings.timeout_seconds,
            ),
        )

    def offers(self, need: GpuNeed, /) -> Sequence[CloudOffer]:
        """Return the listed types in each zone that has them; spot at its present price."""
        names = [kind.instance_type for kind in self._prices.types.values() if kind.serves(need)]
        if not names:
            return []
        priced = [
            (InstanceSpec(instance_type=name, zone=zone), self._prices.types[name].price)
            for name, zone in self._ask(lambda: self._zones(names))
        ]
        if need.spot:
            priced += self._ask(lambda: self._spot_prices(names))
        offers = [
            self._prices.types[spec.instance_type].offer(
                cloud=self.name, region=self._settings.region, spec=spec, price=price
            )
            for spec, price in priced
        ]
        serving = (offer for offer in offers if offer.serves(need))
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
        kind = self._prices.types.get(spec.instance_type)
        if kind is None:
            raise LaunchRefused(f"the price list has no {spec.instance_type}")
        too_dear = (
            kind.price.currency != max_price.currency
            or kind.price.nanos_per_instance_hour > max_price.nanos_per_instance_hour
        )
        # A spot instance may cost less than the list says; EC2 itself holds it to the cap.
        if too_dear and not spec.spot:
            for started in self.find(token=token):
                return started
            raise PriceAboveCap(f"{spec.instance_type}: {kind.price} is above {max_price}")
        boot = self._boot(ttl, environment)
        request = self._request(spec, token, tags, boot, max_price)
        answer = self._ask(lambda: self._client.run_instances(**request), is_launch=True)
        try:
            return self._ask(lambda: self._seen(answer["Instances"][0]))
        except CloudUnavailable as trouble:
            # It runs, and only its price is not told: the same launch asked again tells both.
            raise CloudUnavailable(str(trouble), retryable=True, outcome_unknown=True) from trouble

    def find(
        self, *, token: str | None = None, tags: Mapping[str, str] | None = None
    ) -> Sequence[Instance]:
        """Return the instances with that token and those tags, oldest first."""
        wanted = dict(tags or {}) | ({TOKEN_TAG: token} if token is not None else {})
        filters: list[FilterTypeDef] = [
            {"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()
        ]
        found = self._ask(lambda: self._instances(filters))
        return sorted(found, key=lambda instance: (instance.launched_at, instance.instance_id))

    def describe(self, instance_ids: Sequence[str], /) -> Sequence[Instance]:
        """Return those of the given instances that EC2 shows.

        Asks by filter: asked by id, EC2 answers nothing at all if it misses one of them.
        """
        seen: dict[str, Instance] = {}
        for start in range(0, len(instance_ids), PAGE_SIZE):
            ids = list(instance_ids[start : start + PAGE_SIZE])
            filters: list[FilterTypeDef] = [{"Name": "instance-id", "Values": ids}]
            for instance in self._ask(partial(self._instances, filters)):
                seen[instance.instance_id] = instance
        return [seen[key] for key in instance_ids if key in seen]

    def terminate(self, instance_id: str, /) -> None:
        """Ask EC2 for the end of an instance."""
        self._ask(lambda: self._client.terminate_instances(InstanceIds=[instance_id]))

    def interruptions(self) -> Sequence[Interruption]:
        """Return spot instances marked for their end, and machines that EC2 is to retire."""
        notices = self._ask(lambda: [*self._spot_endings(), *self._retirements()])
        return sorted(notices, key=lambda notice: (notice.at, notice.instance_id))

    def _ask(self, ask: Callable[[], AnswerT], *, is_launch: bool = False) -> AnswerT:
        """Ask up to `attempts_max` times, waiting twice as long each time.

        Only what may pass by itself is asked again; a launch repeats its token.
        """
        is_outcome_unknown = False
        for attempt in range(1, self._settings.attempts_max + 1):
            try:
                return ask()
            except (ClientError, BotoCoreError, ResponseParserError) as error:
                trouble = explain(error, is_launch=is_launch)
                if not isinstance(trouble, CloudUnavailable) or not trouble.retryable:
                    raise trouble from error
                # Once unknown stays unknown: the first try may have started it, not the last.
                is_outcome_unknown |= trouble.outcome_unknown
                trouble.outcome_unknown = is_outcome_unknown
                if attempt == self._settings.attempts_max:
                    raise trouble from error
                self._wait(BACKOFF_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("attempts_max is at least 1")

    def _request(
        self,
        spec: InstanceSpec,
        token: str,
        tags: Mapping[str, str],
        boot: str,
        max_price: InstancePrice,
    ) -> Any:
        """Return the parameters of RunInstances: equal for equal terms, as the token demands."""
        settings = self._settings
        tagged = sorted({**tags, TOKEN_TAG: token}.items())
        request: dict[str, object] = {
            "ClientToken": token,
            "ImageId": settings.image_id,
            "InstanceType": spec.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "Placement": {"AvailabilityZone": spec.zone},
            "InstanceInitiatedShutdownBehavior": "terminate",
            "UserData": boot,
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tagged],
                }
            ],
        }
        if settings.security_group_ids:
            request["SecurityGroupIds"] = list(settings.security_group_ids)
        if spec.zone in settings.subnet_ids:
            request["SubnetId"] = settings.subnet_ids[spec.zone]
        if settings.instance_profile_arn is not None:
            request["IamInstanceProfile"] = {"Arn": settings.instance_profile_arn}
        if spec.spot:
            request["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                    "MaxPrice": decimal_of(max_price.nanos_per_instance_hour),
                },
            }
        return request

    def _boot(self, ttl: timedelta, environment: Mapping[str, str]) -> str:
        """Return the script of the first boot: the timer before anything that could fail."""
        minutes = max(1, math.ceil(ttl / timedelta(minutes=1)))
        exports = [f"export {key}={shlex.quote(environment[key])}" for key in sorted(environment)]
        lines = ["#!/bin/sh", f"shutdown -P +{minutes}", *exports, self._settings.boot_script]
        return "\n".join(lines)

    def _zones(self, names: list[str]) -> list[tuple[str, str]]:
        pages = self._client.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": names}],
        )
        return [
            (found["InstanceType"], found["Location"])
            for page in _bounded(pages)
            for found in page["InstanceTypeOfferings"]
        ]

    def _spot_prices(self, names: list[str]) -> list[tuple[InstanceSpec, InstancePrice]]:
        """Return the present spot price of each type and zone; rounded up to a nano-unit."""
        pages = self._client.get_paginator("describe_spot_price_history").paginate(
            Filters=[{"Name": "instance-type", "Values": names}],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=self._clock(),
        )
        latest: dict[InstanceSpec, tuple[datetime, InstancePrice]] = {}
        for page in _bounded(pages):
            for entry in page["SpotPriceHistory"]:
                spec = InstanceSpec(
                    instance_type=entry["InstanceType"], zone=entry["AvailabilityZone"], spot=True
                )
                price = InstancePrice(nanos_up(entry["SpotPrice"]), "USD")
                if spec not in latest or latest[spec][0] < entry["Timestamp"]:
                    latest[spec] = (entry["Timestamp"], price)
        return [(spec, price) for spec, (_, price) in latest.items()]

    def _instances(self, filters: list[FilterTypeDef]) -> list[Instance]:
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE}
        )
        return [
            self._seen(told)
            for page in _bounded(pages)
            for reservation in page["Reservations"]
            for told in reservation["Instances"]
        ]

    def _seen(self, told: InstanceTypeDef) -> Instance:
        tags = {tag["Key"]: tag["Value"] for tag in told.get("Tags", [])}
        token = tags.pop(TOKEN_TAG, None)
        spec = InstanceSpec(
            instance_type=told["InstanceType"],
            zone=told["Placement"]["AvailabilityZone"],
            spot=told.get("InstanceLifecycle") == "spot",
        )
        gpus, gpu_model = self._gpus(told["InstanceType"])
        state = STATES[told["State"]["Name"]]
        has_ended = state == "terminated"
        return Instance(
            instance_id=told["InstanceId"],
            spec=spec,
            gpus=gpus,
            state=state,
            launched_at=told["LaunchTime"].astimezone(UTC),
            tags=tags,
            token=token,
            gpu_model=gpu_model,
            price=self._price(spec),
            ended_at=ended_at(told.get("StateTransitionReason", "")) if has_ended else None,
        )

    def _gpus(self, instance_type: Any) -> tuple[int, str]:
        """Return how many GPUs a type has, and which; EC2 is asked where the list has it not."""
        if instance_type not in self._gpus_of_type:
            answer = self._client.describe_instance_types(InstanceTypes=[instance_type])
            found = [
                gpu
                for kind in answer["InstanceTypes"]
                for gpu in kind.get("GpuInfo", {}).get("Gpus", [])
            ]
            names = sorted({gpu.get("Name", "") for gpu in found})
            count = sum(gpu["Count"] for gpu in found)
            self._gpus_of_type[instance_type] = count, " and ".join(names)
        return self._gpus_of_type[instance_type]

    def _price(self, spec: InstanceSpec) -> InstancePrice | None:
        """Return what an instance costs: by the list on demand, at EC2's present price on spot.

        EC2 tells no instance's price itself. Its spot price is asked for at most once in
        `SPOT_PRICE_LIFE`; a type that is neither listed nor priced there has none.
        """
        if not spec.spot:
            kind = self._prices.types.get(spec.instance_type)
            return None if kind is None else kind.price
        now = self._clock()
        known = self._spot.get(spec)
        if known is None or now >= known[0] + SPOT_PRICE_LIFE:
            priced = dict(self._spot_prices([spec.instance_type]))
            known = self._spot[spec] = now, priced.get(spec)
        return known[1]

    def _spot_endings(self) -> list[Interruption]:
        pages = self._client.get_paginator("describe_spot_instance_requests").paginate(
            Filters=[{"Name": "status-code", "Values": list(SPOT_ENDINGS)}]
        )
        return spot_endings(_bounded(pages))

    def _retirements(self) -> list[Interruption]:
        pages = self._client.get_paginator("describe_instance_status").paginate(
            Filters=[{"Name": "event.code", "Values": list(RETIREMENTS)}]
        )
        return retirements(_bounded(pages))


def _bounded(pages: Iterable[AnswerT]) -> Iterable[AnswerT]:
    """Yield the pages. A list too long is an error: read in part, it would hide instances."""
    for number, page in enumerate(pages):
        if number == PAGES_MAX:
            raise CloudUnavailable(
                f"EC2 lists more than {PAGES_MAX} pages", retryable=False, outcome_unknown=False
            )
        yield page
