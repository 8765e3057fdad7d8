"""How the pages write money, time and use, and draw their small parts. `{% load offpeak %}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.forms import BoundField
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.site.parts import charts, refusals
from config.site.parts.badges import look_of
from config.site.parts.figures import (
    about_gpu_hours_text,
    aligned_text,
    amount_text,
    duration_text,
    energy_text,
    gpu_hours_text,
    local,
    percent_ppm,
    since_text,
    size_text,
)
from ledger.domain.money import decimal_of
from marketplace.models.leases import LeaseRow
from marketplace.queries import leases

register = template.Library()


@register.filter
def money(value: Any, currency: str = "USD") -> str:
    """`Money`, or nano-units, to the smallest coin: $1,234.50. A remnant shows as <$0.01."""
    nanos, currency = _amount(value, currency)
    return amount_text(nanos, currency)


@register.filter
def money_exact(value: Any, currency: str = "USD") -> str:
    """The same with every nano-unit that is there: $0.000123."""
    nanos, currency = _amount(value, currency)
    return amount_text(nanos, currency, exact=True)


@register.simple_tag
def aligned(nanos: int, currency: str, places: int) -> SafeString:
    """An amount of a column: all to as many decimals, what is beyond the coin quieter."""
    coins, beyond = aligned_text(nanos, currency, places)
    quieter = format_html('<span class="beyond">{}</span>', beyond) if beyond else ""
    return format_html("{}{}", coins, quieter)


@register.simple_tag
def amount(nanos: int, currency: str) -> SafeString:
    """An amount to the coin; every nano-unit of it is behind it, as data and as title."""
    exact, shown = amount_text(nanos, currency, exact=True), amount_text(nanos, currency)
    value = decimal_of(nanos)
    return format_html('<data value="{}" title="{}">{}</data>', value, exact, shown)


@register.filter
def rate(value: Any, currency: str = "USD") -> str:
    """A price per GPU-hour, exact, without its unit: the unit stands in the column's head."""
    if hasattr(value, "nanos_per_gpu_hour"):
        return amount_text(value.nanos_per_gpu_hour, value.currency, exact=True)
    return amount_text(int(value), currency, exact=True)


def _amount(value: Any, currency: str) -> tuple[int, str]:
    if hasattr(value, "nanos"):
        return value.nanos, value.currency
    return int(value), currency


@register.filter
def gpu_hours(gpu_ms: int) -> str:
    """GPU-milliseconds as GPU-hours with two decimals, without the unit."""
    return gpu_hours_text(gpu_ms)


@register.filter
def energy(millijoules: int) -> str:
    """Energy with its unit: 340 Wh, 1.27 kWh."""
    return energy_text(millijoules)


@register.filter
def about_gpu_hours(gpu_ms: int) -> str:
    """Supply in GPU-hours with the unit, as exact as it is of use: 224 GPU-hours, 0.5 GPU-hours."""
    return about_gpu_hours_text(gpu_ms)


@register.filter
def duration(value: timedelta | int) -> str:
    """A length of time, or milliseconds, in its two largest units: 7 h 30 min."""
    if isinstance(value, int):
        value = timedelta(milliseconds=value)
    return duration_text(value)


@register.filter
def bytes_of(size_bytes: int) -> str:
    """A size in the largest unit of which there is one: 12.4 MiB."""
    return size_text(size_bytes)


@register.filter
def size(value: int) -> int:
    """A number without its sign."""
    return abs(value)


@register.filter
def rfc3339(moment: datetime) -> str:
    """UTC to the second with Z, as the API writes it."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@register.filter(name="set")
def set_or_not(value: Any) -> Any:
    """A figure of a policy: what is not set is not 0."""
    return format_html('<span class="quiet">{}</span>', "not set") if value is None else value


@register.filter
def of(values: Mapping[Any, Any], key: Any) -> Any:
    """What a mapping has for a key."""
    return values[key]


@register.filter
def words(name: str) -> str:
    """A field's name as people write it: `limit_needed` is "limit needed"."""
    return name.replace("_", " ")


for shown in (
    percent_ppm,
    refusals.sentence,
    refusals.advice,
    refusals.unmentioned,
    refusals.figure,
    local,
):
    register.filter(shown.__name__, shown)


@register.filter
def bid_in(purpose: str) -> str:
    """The id of the bid that a hold is for, or nothing."""
    kind, _, of = purpose.partition(":")
    return of if kind == "bid" else ""


@register.filter
def right_ends_at(lease: LeaseRow) -> datetime:
    """When the right of a lease ends or ended: its end, or sooner where it is cut short."""
    return leases.right_ends_at(lease)


@register.filter
def clock(moment: datetime) -> str:
    """Hours and minutes in the reader's zone."""
    return f"{timezone.localtime(moment):%H:%M}"


@register.filter
def time_of_day(moment: datetime) -> str:
    """Hours, minutes and seconds in the reader's zone."""
    return f"{timezone.localtime(moment):%H:%M:%S}"


@register.filter
def day(moment: datetime) -> str:
    """The day in the reader's zone: Sat 28 Nov."""
    return f"{timezone.localtime(moment):%a %-d %b}"


@register.filter
def mib(size_mib: int) -> str:
    """Memory of GPUs: 61.4 GiB."""
    return size_text(size_mib * 2**20)


@register.filter
def moment_of(at_ms: int) -> datetime:
    """The moment so many milliseconds after 1970."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


@register.filter
def epoch(moment: datetime) -> int:
    """Whole seconds since 1970, for charts."""
    return int(moment.timestamp())


@register.filter
def units(value: Any) -> str:
    """A price as a plain decimal number of currency units, for charts and inputs."""
    return decimal_of(getattr(value, "nanos_per_gpu_hour", value))


@register.simple_tag
def when(moment: datetime) -> SafeString:
    """A <time> that reads as local time and carries the exact one."""
    stamp = rfc3339(moment)
    return format_html('<time datetime="{}" title="{}">{}</time>', stamp, stamp, local(moment))


@register.simple_tag
def when_exactly(moment: datetime) -> SafeString:
    """The same to the second, where several things happen within a minute."""
    stamp, text = rfc3339(moment), f"{timezone.localtime(moment):%a %-d %b %H:%M:%S %Z}"
    return format_html('<time datetime="{}" title="{}">{}</time>', stamp, stamp, text)


@register.simple_tag
def ago(moment: datetime) -> SafeString:
    """A <time-ago> that says how long since (or until), and keeps saying it."""
    text = since_text(timezone.now() - moment)
    return format_html(
        '<time-ago><time datetime="{}" title="{}">{}</time></time-ago>',
        rfc3339(moment),
        local(moment),
        text,
    )


@register.filter
def unread(count: int) -> str:
    """Return how many notices are not read; no more than a hundred are counted."""
    return "99+" if count > 99 else str(count)


@register.simple_tag
def icon(name: str, size: str = "") -> SafeString:
    """One symbol of `icons.svg`, for the eye only."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        size,
        static("icons.svg"),
        name,
    )


@register.inclusion_tag("parts/badge.html")
def badge(state: str, text: str = "") -> dict[str, Any]:
    """A state as words and a shape; colour only repeats what they say."""
    look = look_of(state)
    return {"look": look, "text": text or look.text}


@register.inclusion_tag("parts/field.html")
def field(bound: BoundField, unit: str = "", hint: str = "") -> dict[str, Any]:
    """One form field with its label, unit, hint and errors, tied together for screen readers.

    The unit of a moment is the zone in which it is read.
    """
    described = [f"{bound.id_for_label}-hint"] if hint or bound.help_text else []
    live = getattr(bound.form, "is_live", False)
    if live:
        described.append(f"{bound.name}-said")
    elif bound.errors:
        described.append(f"{bound.id_for_label}-error")
    attrs: dict[str, str | bool] = {}
    if described:
        attrs["aria-describedby"] = " ".join(described)
    if getattr(bound.field, "is_moment", False):
        unit = unit or f"{timezone.localtime():%Z}"
    return {
        "field": bound,
        "live": live,
        "widget": bound.as_widget(attrs=attrs),
        "unit": unit,
        "hint": hint or bound.help_text,
        "kind": getattr(bound.field.widget, "input_type", "text"),
    }


@register.inclusion_tag("parts/sparkline.html")
def sparkline(values: Sequence[float], label: str) -> dict[str, Any]:
    """A line without axes; `label` says what it shows to those who cannot see it."""
    return {"spark": charts.sparkline(values), "label": label}


@register.inclusion_tag("parts/depth.html")
def depth_chart(
    bids: Sequence[charts.Level], asks: Sequence[charts.Level], label: str
) -> dict[str, Any]:
    """Both sides of the book; levels have `nanos_per_gpu_hour` and `gpus`."""
    return {"depth": charts.depth(bids, asks), "label": label}


@register.inclusion_tag("parts/crossing.html")
def crossing_chart(
    supply: Sequence[charts.Level],
    demand: Sequence[charts.Level],
    price: int | None,
    label: str,
) -> dict[str, Any]:
    """Supply and demand of a round; price: what was paid, in nano-units per GPU-hour."""
    return {"crossing": charts.crossing(supply, demand, price), "label": label}


@register.inclusion_tag("parts/hours.html")
def hours_chart(slots: Sequence[charts.Slot], label: str, label_every: int = 4) -> dict[str, Any]:
    """Free and leased GPUs by slot of time."""
    return {"hours": charts.hours(slots, label_every=label_every), "label": label}


@register.inclusion_tag("parts/gauge.html")
def gauge(part: int, whole: int, label: str, tone: str = "") -> dict[str, Any]:
    """How much of `whole` is `part`, as a bar."""
    share = min(max(part, 0) * 1000 // whole, 1000) if whole else 0
    return {"percent": f"{share // 10}.{share % 10}", "label": label, "tone": tone}


@register.inclusion_tag("parts/lying_bar.html")
def lying_bar(bar: charts.Lying, label: str) -> dict[str, Any]:
    """A bar of several parts with marks; `label` says what it shows."""
    return {"bar": bar, "label": label}


@register.filter
def heat_step(percent: int | None) -> str:
    """The class of a heat-map cell: h0 to h9, or `none` where nothing was measured."""
    return "none" if percent is None else f"h{min(max(percent, 0), 99) // 10}"
