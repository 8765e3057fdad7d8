"""Where a refusal stands on the form of a bid: at the field that it is about."""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType

from config.site.pages.bids.form import BidForm
from config.site.parts import refusals
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.refusal import Refusal
from marketplace.domain.bids import bounds, idle_time, images, workload_profiles
from marketplace.domain.bids.sources import SourceAndInputs, SourceUnfit, SourceUnpinned
from marketplace.domain.files.folder import InputsUnknown
from marketplace.domain.secrets import secret as secrets
from marketplace.domain.spending.projects import ProjectUnreadable
from marketplace.domain.volumes import terms as volumes

FIELD_OF: Mapping[type[Refusal], str] = MappingProxyType(
    {
        FundsInsufficient: "limit",
        bounds.LimitOutOfBounds: "limit",
        bounds.GpuCountOutOfBounds: "gpus",
        bounds.DurationOutOfBounds: "hours",
        bounds.DeadlineTooSoon: "deadline",
        bounds.DeadlineUnreachable: "deadline",
        bounds.DeadlineTooFarAhead: "deadline",
        bounds.StartInThePast: "earliest_start",
        bounds.MinimumOutOfBounds: "gpus_min",
        bounds.GoodTillUnfit: "good_until",
        bounds.NeverWaits: "good_till",
        bounds.FillOrKillIsWhole: "good_till",
        bounds.BudgetOutOfBounds: "budget",
        bounds.ExtensionOutOfBounds: "auto_extend_until",
        bounds.RepeatOutOfBounds: "repeat_until",
        bounds.RepeatWaits: "repeat_until",
        bounds.CommandTooLong: "command",
        bounds.CommandWithoutProgram: "command",
        bounds.SoonestIsAtOnce: "patience",
        bounds.CheckpointsOutOfBounds: "saves_minutes",
        bounds.CostCentreUnreadable: "cost_centre",
        ProjectUnreadable: "project",
        idle_time.IdleTimeOutOfRange: "idle_minutes",
        images.ImageWithoutDigest: "image",
        workload_profiles.WorkloadUnknown: "kind",
        InputsUnknown: "inputs",
        SourceAndInputs: "fetch",
        SourceUnfit: "fetch",
        SourceUnpinned: "fetch",
        secrets.SecretsUnclear: "secrets",
        secrets.SecretMissing: "secrets",
        secrets.SecretsInContainer: "secrets",
        volumes.VolumeNameUnfit: "volumes",
        volumes.VolumesUnclear: "volumes",
        volumes.VolumesOnOneHost: "volumes",
        volumes.VolumeUnknown: "volumes",
    }
)
TIMES = ("deadline", "earliest_start")


def place(form: BidForm, refusal: Refusal, *, unasked: Container[str]) -> bool:
    """Put a refusal at the field that it is about; False: it is about the bid as a whole.

    unasked: fields that the page does not show. What is wrong with a time that nobody was asked
    for is wrong with how long the work is to run.
    """
    field = FIELD_OF.get(type(refusal))
    if field in TIMES and field in unasked:
        field = "hours"
    if field is None or field in unasked:
        return False
    form.add_error(field, refusals.whole(refusal))
    return True
