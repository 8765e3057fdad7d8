"""What the API of bids and of the market is sent and answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast, get_args
from uuid import UUID

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, TenantId, UserId
from ledger.domain.money import Money, Rate
from ledger.rest import AmountField, Body, CountField, DurationField, MomentField, TextField
from marketplace.api.explanations import (
    ExplanationShape,
    ReasonShape,
    explanation_json,
    reason_json,
)
from marketplace.api.promises import PromiseShape, ServiceShape, promises_json, service_json
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.bids.bounds import GPUS_MAX, read_good_till, write_good_till
from marketplace.domain.bids.query_language import read_query, write_query
from marketplace.domain.bids.workload_profiles import Advice, advise
from marketplace.domain.facts.events import Patience, Placement, Seeks, ServiceClass, Workload
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.files.outputs import OUTPUT_LENGTH_MAX, OUTPUTS_MAX
from marketplace.domain.secrets.secret import NAMED_MAX
from marketplace.domain.volumes.terms import MOUNTS_MAX, NAME_LENGTH_MAX, PATH_LENGTH_MAX
from marketplace.models.bids import BidRow
from marketplace.queries.bids import Unit
from marketplace.queries.books import Quote

SECOND = timedelta(seconds=1)


class MountBody(Body):
    """A volume that work finds at `path`, beneath where it starts; left out: at `volumes/NAME`.

    writable: what it changes there becomes the volume's next version. One bid writes at a time.
    """

    name = TextField(max_length=NAME_LENGTH_MAX)
    path = TextField(required=False, trim_whitespace=False, max_length=PATH_LENGTH_MAX)
    writable = serializers.BooleanField(default=True)


class MountShape(serializers.Serializer[Any]):
    """A volume that work finds."""

    name = serializers.CharField()
    path = serializers.CharField()
    writable = serializers.BooleanField()


class WorkloadBody(Body):
    """What will run. kind: one of GET /workloads. command: the words of a command line.

    checkpoint_seconds: started anew, it goes on from where it was but for so many seconds at most,
    and reports no checkpoints. Left out: only checkpoints that are reported count. image: the
    container image it runs in, such as NAME@sha256:…; left out: it runs as a process of the host.
    inputs: the id of a folder whose files it finds where it starts. outputs: what of its folder is
    kept when it ended, such as `out/`, `*.pt` or `**/*.log`. secrets: names of those it is handed,
    each in the file /run/secrets/NAME; secret_variables: which of them are variables as well.
    volumes: what it finds of the organisation's volumes. end_when_idle_seconds: its leases
    are given back once idle for so long, 300 to 43,200; left out: by the organisation's rule alone.
    fetch: what the host fetches where the work starts, instead of `inputs`, such as
    `git+https://host/path@ref#folder` or `https://host/file#sha256=…`; fetch_secret: the name of
    the secret that is shown there. project: the label by which spending is told apart and budgets
    count it, such as `llm-eval`.
    """

    kind = TextField()
    command = serializers.ListField(
        child=TextField(trim_whitespace=False, allow_blank=True), default=list
    )
    environment = serializers.DictField(
        child=TextField(trim_whitespace=False, allow_blank=True), default=dict
    )
    checkpoint_seconds = CountField(value_min=1, required=False)
    image = TextField(required=False, allow_blank=True)
    inputs = serializers.UUIDField(required=False)
    fetch = TextField(required=False, allow_blank=True)
    fetch_secret = TextField(required=False, allow_blank=True)
    outputs = serializers.ListField(
        child=TextField(trim_whitespace=False, max_length=OUTPUT_LENGTH_MAX),
        default=list,
        max_length=OUTPUTS_MAX,
    )
    secrets = serializers.ListField(child=TextField(), default=list, max_length=NAMED_MAX)
    secret_variables = serializers.ListField(child=TextField(), default=list, max_length=NAMED_MAX)
    volumes = serializers.ListField(child=MountBody(), default=list, max_length=MOUNTS_MAX)
    end_when_idle_seconds = CountField(required=False)
    project = TextField(required=False, allow_blank=True)


class AskBid(Body):
    """A bid. query: what the GPUs must be, such as `gpu=H100 memory>=40GiB region=eu`.

    service_class must be said. market: or `markets`, of which one is chosen when it is placed; all
    that have the region, if left out. earliest_start: at once, if left out; deadline: a day after
    the earliest end. limit: most per GPU-hour. cost_centre: the business unit's own, if left out.
    gpus_min, duration_min_seconds: with less it makes do, all at one start; more GPUs are
    preferred, then more time. budget: the most the whole lease may cost. good_till: `deadline`, a
    moment, `immediate-or-cancel` (what there is at once) or `fill-or-kill` (all at once, or
    nothing). auto_extend_until: the lease goes on in place while that can be had at its price.
    repeat_until: the same is asked for again until then, whenever its lease is over. resume: what
    is left of a lease that an owner, the market or a fault cut short is asked for again. A budget
    is then that of all these bids together. seeks: which place within its limit comes first.
    pausable: once it had the market's firm time, the work may be paused for others, with the
    notice of its owners; the rest is asked for like that of any lease that was cut short.
    """

    bid_id = serializers.UUIDField(required=False)
    subscriber_id = serializers.UUIDField(required=False)
    market = TextField(required=False)
    markets = serializers.ListField(child=TextField(), required=False, max_length=64)
    query = TextField(default="", allow_blank=True)
    gpus = CountField(value_min=1, value_max=GPUS_MAX)
    gpus_min = CountField(value_min=1, value_max=GPUS_MAX, required=False)
    duration_seconds = DurationField(seconds_min=1)
    duration_min_seconds = DurationField(seconds_min=1, required=False)
    earliest_start = MomentField(required=False)
    deadline = MomentField(required=False)
    good_till = TextField(default="deadline")
    auto_extend_until = MomentField(required=False)
    repeat_until = MomentField(required=False)
    resume = serializers.BooleanField(default=False)
    pausable = serializers.BooleanField(default=False)
    limit = AmountField()
    budget = AmountField(required=False)
    currency = TextField(required=False)
    placement = serializers.ChoiceField(choices=get_args(Placement), default="same-host")
    service_class = serializers.ChoiceField(choices=get_args(ServiceClass))
    patience = serializers.ChoiceField(choices=get_args(Patience), default="immediate")
    seeks = serializers.ChoiceField(choices=get_args(Seeks), default="cheapest")
    workload = WorkloadBody()
    cost_centre = TextField(default="", allow_blank=True)
    burst_allowed = serializers.BooleanField(default=False)


class AmendBid(Body):
    """A new limit, deadline or number of GPUs; what is left out stays."""

    limit = AmountField(required=False)
    deadline = MomentField(required=False)
    gpus = CountField(value_min=1, value_max=GPUS_MAX, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a change of nothing."""
        if not attrs:
            raise serializers.ValidationError("Say a limit, a deadline or gpus.", "nothing-to-do")
        return attrs


def terms_of(
    asked: Mapping[str, Any],
    *,
    bid_id: UUID,
    tenant_id: TenantId,
    user_id: UserId | None,
    unit: Unit,
    market: str,
    currency: str,
) -> BidTerms:
    """Return the terms that a checked body asks for; market, currency: where it says none."""
    currency = asked.get("currency", currency)
    good_till, good_until = read_good_till(asked["good_till"])
    shortest, budget = asked.get("duration_min_seconds"), asked.get("budget")
    return BidTerms(
        bid_id=BidId(bid_id),
        tenant_id=tenant_id,
        subscriber_id=unit.subscriber_id,
        user_id=user_id,
        account_id=funds_account(unit.subscriber_id, currency),
        market=asked.get("market", market),
        request=read_query(asked["query"]),
        gpus=asked["gpus"],
        placement=cast(Placement, asked["placement"]),
        duration_seconds=asked["duration_seconds"] // SECOND,
        earliest_start=asked.get("earliest_start"),
        deadline=asked.get("deadline"),
        limit=Rate(asked["limit"], currency),
        service_class=cast(ServiceClass, asked["service_class"]),
        patience=cast(Patience, asked["patience"]),
        seeks=cast(Seeks, asked["seeks"]),
        workload=_workload_of(asked["workload"]),
        cost_centre=asked["cost_centre"] or unit.cost_centre,
        burst_allowed=asked["burst_allowed"],
        good_till=good_till,
        good_until=good_until,
        gpus_min=asked.get("gpus_min"),
        duration_min_seconds=None if shortest is None else shortest // SECOND,
        budget=None if budget is None else Money(budget, currency),
        auto_extend_until=asked.get("auto_extend_until"),
        repeat_until=asked.get("repeat_until"),
        resume=asked["resume"],
        pausable=asked["pausable"],
    )


def _workload_of(asked: Mapping[str, Any]) -> Workload:
    return Workload(
        kind=asked["kind"],
        command=tuple(asked["command"]),
        environment=tuple(sorted(asked["environment"].items())),
        checkpoint_seconds=asked.get("checkpoint_seconds"),
        image=asked.get("image", ""),
        inputs=asked.get("inputs"),
        fetch=asked.get("fetch", ""),
        fetch_secret=asked.get("fetch_secret", ""),
        outputs=tuple(asked["outputs"]),
        secrets=tuple(asked["secrets"]),
        secret_variables=tuple(asked["secret_variables"]),
        volumes=tuple(
            VolumeMount(each["name"], each.get("path", f"volumes/{each['name']}"), each["writable"])
            for each in asked["volumes"]
        ),
        end_when_idle_seconds=asked.get("end_when_idle_seconds"),
        project=asked.get("project", ""),
    )


class WorkloadShape(serializers.Serializer[Any]):
    """What will run."""

    kind = serializers.CharField(source="workload_kind")
    command = serializers.ListField(child=serializers.CharField())
    environment = serializers.DictField(child=serializers.CharField())
    checkpoint_seconds = serializers.IntegerField(allow_null=True)
    image = serializers.CharField()
    inputs = serializers.UUIDField(allow_null=True)
    fetch = serializers.CharField()
    fetch_secret = serializers.CharField()
    outputs = serializers.ListField(child=serializers.CharField())
    secrets = serializers.ListField(child=serializers.CharField())
    secret_variables = serializers.ListField(child=serializers.CharField())
    volumes = serializers.ListField(child=MountShape())
    end_when_idle_seconds = serializers.IntegerField(allow_null=True)
    project = serializers.CharField()


class ChainShape(serializers.Serializer[Any]):
    """Where a bid stands among those that follow one another.

    first_id: the bid they began with. continues_id: the bid before. resumes_lease_id: the lease of
    which it asks for the rest. ended_because: why no bid follows it; null: that is not said yet.
    """

    first_id = serializers.UUIDField()
    number = serializers.IntegerField()
    continues_id = serializers.UUIDField(allow_null=True)
    resumes_lease_id = serializers.UUIDField(allow_null=True)
    ended_because = serializers.CharField(allow_null=True)


class BidShape(serializers.Serializer[BidRow]):
    """A bid. reason: why an open one is not matched yet. chain: null for one that none follows."""

    id = serializers.UUIDField(source="bid_id")
    tenant_id = serializers.UUIDField()
    subscriber_id = serializers.UUIDField()
    user_id = serializers.UUIDField(allow_null=True)
    market = serializers.CharField()
    state = serializers.CharField()
    reason = serializers.SerializerMethodField()
    query = serializers.CharField()
    gpus = serializers.IntegerField()
    gpus_min = serializers.IntegerField(allow_null=True)
    placement = serializers.CharField()
    duration_seconds = serializers.IntegerField()
    duration_min_seconds = serializers.IntegerField(allow_null=True)
    earliest_start = MomentField()
    deadline = MomentField()
    good_till = serializers.SerializerMethodField()
    auto_extend_until = MomentField(allow_null=True)
    repeat_until = MomentField(allow_null=True)
    resume = serializers.BooleanField()
    pausable = serializers.BooleanField()
    pauses = serializers.IntegerField()
    done_seconds = serializers.IntegerField()
    chain = serializers.SerializerMethodField()
    limit = AmountField(source="limit_nanos_per_gpu_hour")
    budget = AmountField(source="budget_nanos", allow_null=True)
    currency = serializers.CharField()
    service_class = serializers.CharField()
    patience = serializers.CharField()
    seeks = serializers.CharField()
    workload = WorkloadShape(source="*")
    cost_centre = serializers.CharField()
    burst_allowed = serializers.BooleanField()
    lease_id = serializers.UUIDField(allow_null=True)
    placed_at = MomentField()
    queued_at = MomentField()
    ended_at = MomentField(allow_null=True)
    ended_because = serializers.CharField()
    version = serializers.IntegerField()
    actions = serializers.ListField(child=serializers.CharField(), default=list)
    """What may be done with it now by who asks: `amend` and `cancel`, or nothing."""

    def get_good_till(self, row: BidRow) -> str:
        """Return how long it waits, in the words in which it is asked for."""
        return write_good_till(row.good_till, row.good_until)

    @extend_schema_field(ChainShape(allow_null=True))
    def get_chain(self, row: BidRow) -> dict[str, Any] | None:
        """Return its place among the bids that follow one another."""
        if row.chain_id is None:
            return None
        return {
            "first_id": str(row.chain_id),
            "number": row.chain_number,
            "continues_id": row.continues_id and str(row.continues_id),
            "resumes_lease_id": row.resumes_lease_id and str(row.resumes_lease_id),
            "ended_because": row.chain_ended or None,
        }

    @extend_schema_field(ReasonShape(allow_null=True))
    def get_reason(self, row: BidRow) -> dict[str, str] | None:
        """Return why an open bid is not matched."""
        return reason_json(row.reason if row.state == "open" else None)


class SliceShape(serializers.Serializer[Any]):
    """A part of a GPU, or a whole one, and how much of its compute that is."""

    gpu_model = serializers.CharField()
    profile = serializers.CharField()
    memory_mib = serializers.IntegerField()
    share_ppm = serializers.IntegerField()


class AdviceShape(serializers.Serializer[Any]):
    """What a kind of workload needs of each GPU, why, and on what it fits, smallest first."""

    kind = serializers.CharField()
    memory_mib = serializers.IntegerField()
    because = serializers.CharField()
    hours_typical = serializers.IntegerField(allow_null=True)
    slices = SliceShape(many=True)


class QuoteShape(serializers.Serializer[Any]):
    """What a bid would get now. Not binding: nothing is kept for it.

    gpus: how many of those it asks for; 0 where it would wait. own: its organisation's own, which
    cost nothing. cuts: leases that would end sooner for it. reliability_ppm: of leases, how many
    their hosts did not break off; null: unknown. workload: what its kind needs, in which GPUs.
    """

    matched = serializers.BooleanField()
    lane = serializers.CharField()
    price = AmountField(allow_null=True)
    currency = serializers.CharField()
    starts_at = MomentField(allow_null=True)
    ends_at = MomentField(allow_null=True)
    gpu_model = serializers.CharField()
    hosts = serializers.IntegerField()
    gpus = serializers.IntegerField()
    own = serializers.BooleanField()
    cuts = serializers.IntegerField()
    reliability_ppm = serializers.IntegerField(allow_null=True)
    cost = AmountField(allow_null=True)
    hold = AmountField()
    query = serializers.CharField()
    deadline = MomentField()
    service_class = serializers.CharField()
    workload = AdviceShape()
    reclaim = PromiseShape(many=True)
    service = ServiceShape(many=True)
    explanation = ExplanationShape()
    expires_at = MomentField()


def quote_json(quote: Quote) -> dict[str, Any]:
    """Return a quote as the API shows it."""
    window, placed = quote.window, quote.placed
    work, fewest = placed.workload, placed.gpus_min or placed.gpus
    advice = advise(work.kind, gpus=fewest, isolation=placed.request.isolation)
    return {
        "matched": quote.price is not None,
        "lane": quote.lane,
        "price": None if quote.price is None else _amount(quote.price.nanos_per_gpu_hour),
        "currency": placed.limit.currency,
        "starts_at": None if window is None else _moment(window.starts_at),
        "ends_at": None if window is None else _moment(window.ends_at),
        "gpu_model": quote.gpu_model,
        "hosts": quote.hosts,
        "gpus": quote.gpus,
        "own": quote.own,
        "cuts": quote.cuts,
        "reliability_ppm": quote.reliability_ppm,
        "cost": None if quote.cost is None else _amount(quote.cost.nanos),
        "hold": _amount(quote.hold.nanos),
        "query": write_query(placed.request),
        "deadline": _moment(placed.deadline),
        "service_class": placed.service_class,
        "workload": _advice_json(advice),
        "reclaim": promises_json(quote.promises),
        "service": service_json(quote.service),
        "explanation": explanation_json(
            quote.explanation, state="preview", currency=placed.limit.currency
        ),
        "expires_at": _moment(quote.expires_at),
    }


def _advice_json(advice: Advice) -> dict[str, Any]:
    return {
        "kind": advice.envelope.kind,
        "memory_mib": advice.memory_mib,
        "because": advice.envelope.because,
        "hours_typical": advice.hours,
        "slices": [
            {
                "gpu_model": each.model,
                "profile": each.profile,
                "memory_mib": each.memory_mib,
                "share_ppm": each.share_ppm,
            }
            for each in advice.slices
        ],
    }


_amount = AmountField().to_representation
_moment = MomentField().to_representation
