"""Where a refusal stands on the form of an offer: at the field that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from config.site.pages.offers.form import OfferForm
from config.site.parts import refusals
from ledger.domain.refusal import Refusal
from listings.domain import recurrence, terms, windows
from listings.domain.divisions import MigLayoutImpossible, MigModeOn, SharesUnfit
from listings.domain.forms import FormsUnfit
from listings.domain.gpus import GpuNamedTwice, IsolationUnfit, TooManyGpus
from listings.domain.hosts import GpuListedAlready, GpuNotOnHost
from listings.domain.permits import ListingNotAllowed

FIELD_OF: Mapping[type[Refusal], str] = MappingProxyType(
    {
        terms.GpusMissing: "gpu",
        TooManyGpus: "gpu",
        GpuNamedTwice: "gpu",
        GpuNotOnHost: "gpu",
        GpuListedAlready: "gpu",
        ListingNotAllowed: "gpu",
        windows.WindowEmpty: "ends_at",
        windows.WindowOver: "ends_at",
        windows.WindowTooFarAhead: "ends_at",
        recurrence.WindowTooShort: "ends_at",
        recurrence.RuleTooFarAhead: "starts_at",
        recurrence.WallTimeTooFine: "starts_at",
        terms.FloorOutOfBounds: "floor",
        terms.NoticeOutOfBounds: "notice",
        terms.GraceOutOfBounds: "grace",
        terms.ReclaimFeeOutOfBounds: "reclaim_fee",
        terms.ReclaimStepsUnordered: "longer_fee",
        terms.LeaseMinOutOfBounds: "lease_min",
        terms.CleaningOutOfBounds: "cleaning",
        terms.WorkloadKindsUnreadable: "workload_kinds",
        IsolationUnfit: "isolation",
        MigModeOn: "isolation",
        SharesUnfit: "shares",
        MigLayoutImpossible: "profiles",
        FormsUnfit: "ways",
    }
)


def place(form: OfferForm, refusal: Refusal) -> bool:
    """Put a refusal at the field that it is about; False: it is about the offer as a whole."""
    field = FIELD_OF.get(type(refusal))
    if field is None:
        return False
    if field in ("starts_at", "ends_at") and form.cleaned_data["schedule"]:
        field = "schedule"
    form.add_error(field, refusals.whole(refusal))
    return True
