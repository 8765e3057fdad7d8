"""What GPUs cost elsewhere: the figures by which the platform tells what pooling saved."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from config.site.forms.answers import done, meta_of, page
from config.site.forms.fields import MoneyField, TokenField
from ledger.access import PlatformOnly
from ledger.access.visits import actor_of
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from marketplace.commands.spending import set_comparison
from marketplace.domain.spending.events import ComparisonSet
from marketplace.domain.spending.savings import PPM, TEXT_CHARS_MAX, YEARS_MAX
from marketplace.queries import spending as queries

CURRENCY = "USD"
PERCENT = PPM // 100


class ComparisonForm(forms.Form):
    """What GPUs of a model cost elsewhere."""

    token = TokenField()
    gpu_model = forms.CharField(label="GPU", max_length=TEXT_CHARS_MAX)
    cloud = MoneyField(label="List price of a cloud", currency=CURRENCY, required=False)
    purchase = MoneyField(label="Purchase price", currency=CURRENCY, required=False)
    years = forms.IntegerField(label="Used for", min_value=1, max_value=YEARS_MAX, initial=4)
    utilisation = forms.IntegerField(label="Utilisation", min_value=1, max_value=100, initial=40)
    running = MoneyField(label="Running costs", currency=CURRENCY, required=False)
    source = forms.CharField(label="Source", max_length=TEXT_CHARS_MAX, required=False)


@require_http_methods(["GET", "HEAD", "POST"])
def index(request: HttpRequest) -> HttpResponse:
    """List the figures, and a form for one model; sent, set them."""
    actor, refusal = actor_of(request), None
    if not actor.has_platform_money:
        raise PlatformOnly()
    form = ComparisonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        terms = ComparisonSet(
            gpu_model=said["gpu_model"],
            currency=CURRENCY,
            cloud=_rate(said["cloud"]),
            purchase=said["purchase"],
            years=said["years"],
            utilisation_ppm=said["utilisation"] * PERCENT,
            running=_rate(said["running"]),
            source=said["source"],
            by=actor.user_id,
            at=timezone.now(),
        )
        try:
            by = meta_of(actor, said["token"])
            position = set_comparison(default_store(), terms=terms, by=by)
            return done(request, "/spend/comparison", position, "The figures are set.")
        except Refusal as refused:
            refusal = refused
    context = {"form": form, "comparisons": queries.comparisons()}
    invalid = bool(form.errors)
    return page(request, "pages/comparison.html", context, refusal=refusal, invalid=invalid)


def _rate(money: Money | None) -> Rate | None:
    """Return an amount as what an hour costs; None: it was not given."""
    return None if money is None else Rate(money.nanos, money.currency)
