"""The ways in which an owner lets a card be listed, of which the market chooses by demand.

An offer by demand is in one form at a time. Another form is another offer, under the same terms,
that takes the place of the first on the host's stream; why, it says itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ledger.domain.ids import OfferId
from ledger.domain.money import Rate
from ledger.domain.refusal import Invalid, Refusal
from listings.domain.divisions import check_division
from listings.domain.events import ByDemand, Chosen, Form, Gpu, Isolation, OfferPublished

FORMS_MIN, FORMS_MAX = 2, 8
FORM_SECONDS_MIN, FORM_SECONDS_MAX = 300, 7 * 86_400


class FormsUnfit(Invalid):
    """The forms of an offer by demand are not as they must be: `reason` says why.

    Name two to eight different ways, the first of which it begins with: whole, or `shares`; and
    between five minutes and seven days for which it stays in one. Leave `shares` of the offer out.
    """


class FormTooYoung(Refusal):
    """The offer has not been in its form for as long as its owner wants it to stay."""


class FormNotAllowed(Refusal):
    """Its owner does not allow that form of the offer, or it is in it already."""


def check_by_demand(by_demand: ByDemand, floor: Rate) -> ByDemand:
    """Return the forms in their normal form, each with its floor; or refuse them.

    floor: of those that say none. Raises: FormsUnfit, SharesUnfit.
    """
    forms = tuple(
        Form(check_division(form.division), form.floor or floor) for form in by_demand.forms
    )
    if not FORMS_MIN <= len(forms) <= FORMS_MAX:
        raise FormsUnfit(reason=f"{len(forms)} forms", forms_min=FORMS_MIN, forms_max=FORMS_MAX)
    if len({form.division for form in forms}) < len(forms):
        raise FormsUnfit(reason="two forms are the same")
    if any(each.floor is None or each.floor.currency != floor.currency for each in forms):
        raise FormsUnfit(reason="all floors are in one currency")
    if not FORM_SECONDS_MIN <= by_demand.form_min_seconds <= FORM_SECONDS_MAX:
        raise FormsUnfit(
            reason="form_min_seconds",
            seconds_min=FORM_SECONDS_MIN,
            seconds_max=FORM_SECONDS_MAX,
        )
    return replace(by_demand, forms=forms)


def floor_of(form: Form) -> Rate:
    """Return the floor of a form of a published offer, which always has one."""
    assert form.floor is not None
    return form.floor


def isolation_of(form: Form) -> Isolation:
    """Return the isolation level of a form."""
    return "whole" if form.division is None else form.division.kind


def in_form(offer: OfferPublished, form: Form, gpus: Sequence[Gpu]) -> OfferPublished:
    """Return an offer as it would be in another form. gpus: as that form divides its cards."""
    return replace(
        offer,
        gpus=tuple(gpus),
        division=form.division,
        isolation=isolation_of(form),
        floor=floor_of(form),
    )


def reformed(
    offer: OfferPublished,
    form: Form,
    gpus: Sequence[Gpu],
    *,
    floor: Rate,
    offer_id: OfferId,
    chosen: Chosen,
    now: datetime,
) -> OfferPublished:
    """Return the offer that takes the place of another: in that form, for the windows to come.

    floor: of the old one now, which its owner may have changed and which that form keeps.
    Raises: FormNotAllowed, FormTooYoung.
    """
    by_demand = offer.by_demand
    if by_demand is None or form not in by_demand.forms or form.division == offer.division:
        raise FormNotAllowed(offer_id=str(offer.offer_id))
    if (now - offer.at).total_seconds() < by_demand.form_min_seconds:
        raise FormTooYoung(
            offer_id=str(offer.offer_id), form_min_seconds=by_demand.form_min_seconds
        )
    kept = tuple(
        replace(each, floor=floor) if each.division == offer.division else each
        for each in by_demand.forms
    )
    return replace(
        in_form(offer, form, gpus),
        offer_id=offer_id,
        windows=tuple(window for window in offer.windows if window.ends_at > now),
        by_demand=replace(by_demand, forms=kept),
        chosen=chosen,
        at=now,
    )
