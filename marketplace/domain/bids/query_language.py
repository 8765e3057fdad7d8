"""The small language in which people say what a GPU must be.

`gpu=H100,A100 memory>=40GiB region=eu nvlink label.team=x`: conditions separated by spaces, all
of which must hold. One grammar for API, CLI and page; `CONDITIONS` is what the documentation is
made from. A value with spaces goes into double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from uuid import UUID

from ledger.domain.ids import HostId
from ledger.domain.refusal import Invalid
from listings.domain.sandboxes import LEVELS, NETWORKS
from listings.domain.sla import START_BY_SECONDS_MAX
from marketplace.domain.facts.events import GpuRequest

QUERY_CHARS_MAX = 1_000
ISOLATIONS = ("whole", "mig", "mps", "timeslice", "cooperative")
"""From the strongest to the weakest."""

_CONDITION = re.compile(r'([A-Za-z][A-Za-z0-9._/-]*)(?:(>=|<=|!=|=|>|<)("[^"]*"|[^\s"]*))?')
_MEMORY = re.compile(r"([0-9]{1,9})(MiB|GiB|TiB|MB|GB|TB)?", re.IGNORECASE)
_MIB = {"mib": 1, "gib": 1024, "tib": 1024 * 1024, "mb": 1, "gb": 1024, "tb": 1024 * 1024}
_PERCENT = re.compile(r"([0-9]{1,3})%?")
_SHARE = re.compile(r"0(\.[0-9]{1,6})?|1(\.0{1,6})?")
_LENGTH = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
NOTICE_MAX, GRACE_MAX = 7 * 86_400, 15 * 60
"""Nobody promises more notice, or a longer grace, than this, in seconds."""
PPM = 1_000_000
MOST_ASKED = {
    "reliability_min_ppm": PPM,
    "notice_seconds_min": NOTICE_MAX,
    "reclaim_fee_ppm_min": PPM,
    "grace_seconds_min": GRACE_MAX,
    "start_seconds_max": START_BY_SECONDS_MAX,
    "availability_min_ppm": PPM,
}
"""The largest number of each field of a request that can be asked for; the least is 1."""
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")
DRIVER = re.compile(r"[1-9][0-9]{1,3}(\.[0-9]{1,4}){0,2}")
LINKED_MAX = 576
"""GPUs of the largest NVLink domain there is (NVL576)."""
HOSTS_MAX = 12
PREFERENCES_MAX = 4
PREFERENCE = re.compile(r"nvlink|region|label\.[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
"""What GPUs of one gang had best have in common. `nvlink`: of each host one NVLink group. `region`,
`label.rack`: all in one region, one rack. A preference and no condition: it decides between places
of one price and one start, so nobody pays more or waits longer for it."""


class QueryTooLong(Invalid):
    """A query has at most a thousand characters."""


class ConditionUnreadable(Invalid):
    """Here the query cannot be read: `column` counts characters from 1.

    Write conditions such as gpu=H100 or memory>=40GiB, separated by spaces.
    """


class ConditionUnknown(Invalid):
    """There is no such condition; `known` lists them."""


class ConditionRepeated(Invalid):
    """This condition is there twice; say it once."""


class ComparisonUnfit(Invalid):
    """This condition does not go with that sign: `expected` shows how it is written."""


class ValueUnreadable(Invalid):
    """This condition's value cannot be read: `expected` shows how it is written."""


Apply = Callable[[GpuRequest, str, str], GpuRequest | None]
"""Returns a request narrowed by a sign and a value; None: the value cannot be read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One word of the language. signs: those it is written with; empty: it stands alone."""

    name: str
    signs: tuple[str, ...]
    example: str
    meaning: str
    apply: Apply


def fits(asked: int | None, most: int) -> bool:
    """Tell if a number can be asked for; None asks for nothing."""
    return asked is None or 0 < asked <= most


def _seconds(value: str) -> int:
    form = _LENGTH.fullmatch(value)
    return int(form[1]) * _SECONDS[form[2]] if form else 0


def _ppm(value: str) -> int:
    """Return a share between 0 and 1 in millionths; 0 where it cannot be read."""
    return int(Decimal(value) * PPM) if _SHARE.fullmatch(value) else 0


def _words(value: str) -> tuple[str, ...] | None:
    words = tuple(word.strip() for word in value.split(","))
    return words if all(words) else None


def _host_ids(value: str) -> tuple[HostId, ...] | None:
    words = value.split(",")
    try:
        ids = {HostId(UUID(word)) for word in words}
    except ValueError:
        return None
    return tuple(sorted(ids)) if len(words) <= HOSTS_MAX else None


CONDITIONS: dict[str, Condition] = {}


def _condition(name: str, example: str, *signs: str) -> Callable[[Apply], Apply]:
    """Enter a word of the language. The docstring of what reads it is its meaning."""

    def entered(apply: Apply) -> Apply:
        CONDITIONS[name] = Condition(name, signs, example, apply.__doc__ or "", apply)
        return apply

    return entered


_HOST = "00000000-0000-4000-8000-00000000000a"


@_condition("gpu", "gpu=H100,A100", "=", "!=")
def _models(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """one of these models, or a kind of it; with != none of them"""
    names = _words(value)
    if names is None:
        return None
    return replace(request, not_models=names) if sign == "!=" else replace(request, models=names)


@_condition("memory", "memory>=40GiB", ">=")
def _memory(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """memory of each GPU; GiB if no unit"""
    form = _MEMORY.fullmatch(value)
    if form is None:
        return None
    mib = int(form[1]) * _MIB[(form[2] or "GiB").lower()]
    return replace(request, memory_mib_min=mib) if 0 < mib <= 16 * 1024 * 1024 else None


@_condition("compute", "compute>=8.0", ">=")
def _compute(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """CUDA compute capability"""
    return replace(request, compute_capability_min=value) if _CAPABILITY.fullmatch(value) else None


@_condition("share", "share>=50%", ">=")
def _share(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """part of its card's compute: less than all in MIG instances and shares of GPUs"""
    form = _PERCENT.fullmatch(value)
    percent = int(form[1]) if form else 0
    return replace(request, compute_percent_min=percent) if 1 <= percent <= 100 else None


@_condition("driver", "driver>=570", ">=")
def _driver(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """version of the host's driver"""
    return replace(request, driver_min=value) if DRIVER.fullmatch(value) else None


@_condition("nvlink", "nvlink>=4", "", "=", ">=")
def _nvlink(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the GPUs of a host are joined by NVLink; with a number: so many at least"""
    if sign == ">=":
        count = int(value) if re.fullmatch(r"[0-9]{1,3}", value) else 0
        fits = 2 <= count <= LINKED_MAX
        return replace(request, nvlink=True, nvlink_min=count) if fits else None
    if sign == "=" and value not in ("yes", "no"):
        return None
    return replace(request, nvlink=value != "no")


@_condition("region", "region=eu,us-east", "=", "!=")
def _region(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the host is in one of these regions, or in a part of one (eu-west); with != in none"""
    names = _words(value)
    if names is None:
        return None
    if sign == "!=":
        return replace(request, not_regions=names)
    return replace(request, region=names[0], other_regions=names[1:])


@_condition("isolation", "isolation=mps", "=")
def _isolation(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """at least this level of isolation; without it never a share of a GPU"""
    return replace(request, isolation=value) if value in ISOLATIONS else None


@_condition("sandbox", "sandbox>=process", ">=")
def _sandbox(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """how far the host keeps work from itself and from other leases, at least"""
    return replace(request, sandbox_min=value) if value in LEVELS else None


@_condition("network", "network=open", "=")
def _network(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """work reaches public addresses (open), or has no way out at all (none)"""
    return replace(request, network=value) if value in NETWORKS else None


@_condition("tenant", "tenant=own", "=")
def _tenant(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """GPUs of your own organisation only"""
    return replace(request, own=True) if value == "own" else None


@_condition("host", f"host={_HOST}", "=")
def _hosts(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """only on these hosts, by id"""
    hosts = _host_ids(value)
    return replace(request, hosts=hosts) if hosts else None


@_condition("not-host", f"not-host={_HOST}", "=")
def _not_hosts(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """on none of these hosts"""
    hosts = _host_ids(value)
    return replace(request, not_hosts=hosts) if hosts else None


@_condition("reliability", "reliability>=0.99", ">=")
def _reliability(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the share of leases that the host did not break off, once that is known"""
    ppm = _ppm(value)
    return replace(request, reliability_min_ppm=ppm) if ppm else None


@_condition("notice", "notice>=30m", ">=")
def _notice(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the notice that owners promise for a reclaim: m, h or d; not asked of your own GPUs"""
    seconds = _seconds(value)
    return replace(request, notice_seconds_min=seconds) if 0 < seconds <= NOTICE_MAX else None


@_condition("reclaim", "reclaim>=20%", ">=")
def _reclaim(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """what owners pay of the lost rest for a reclaim at that notice; not of your own GPUs"""
    form = _PERCENT.fullmatch(value)
    percent = int(form[1]) if form else 0
    ppm = percent * PPM // 100
    return replace(request, reclaim_fee_ppm_min=ppm) if 0 < ppm <= PPM else None


@_condition("grace", "grace>=60s", ">=")
def _grace(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """what owners give work between signal and kill: s or m; not asked of your own GPUs"""
    seconds = _seconds(value)
    return replace(request, grace_seconds_min=seconds) if 0 < seconds <= GRACE_MAX else None


@_condition("starts", "starts<=60s", "<=")
def _starts(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the owner promises that work starts within this, or credits: s, m or h"""
    seconds = _seconds(value)
    fits = 0 < seconds <= START_BY_SECONDS_MAX
    return replace(request, start_seconds_max=seconds) if fits else None


@_condition("availability", "availability>=0.99", ">=")
def _availability(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the owner promises this share of the lease's time at least, or credits"""
    ppm = _ppm(value)
    return replace(request, availability_min_ppm=ppm) if ppm else None


@_condition("prefer", "prefer=label.rack,region", "=")
def _prefer(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """rather one rack, else one region, else one NVLink group on each host (nvlink)"""
    words = tuple(value.split(","))
    fits = len(set(words)) == len(words) <= PREFERENCES_MAX
    fits = fits and all(map(PREFERENCE.fullmatch, words))
    return replace(request, prefer=words) if fits else None


@_condition("label.NAME", "label.team=x", "=", "!=")
def _labels(request: GpuRequest, sign: str, value: str) -> GpuRequest | None:
    """the offer carries this label; with != it does not"""
    return request  # see `_add`: the label is part of the name


def read_query(text: str) -> GpuRequest:
    """Read a query; an empty one asks for nothing.

    Raises:
        QueryTooLong, ConditionUnreadable, ConditionUnknown, ConditionRepeated, ComparisonUnfit,
        ValueUnreadable: each with `column`, where in the text it is, and `given`.
    """
    if len(text) > QUERY_CHARS_MAX:
        raise QueryTooLong(chars=len(text), chars_max=QUERY_CHARS_MAX)
    request, seen, at = GpuRequest(), set[str](), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        form = _CONDITION.match(text, at)
        if form is None or (form.end() < len(text) and not text[form.end()].isspace()):
            raise ConditionUnreadable(column=at + 1, given=text[at : at + 40])
        name, sign = form[1], form[2] or ""
        value = (form[3] or "").strip('"')
        place = {"column": at + 1, "given": form[0][:80]}
        said = name.lower() + ("!" if sign == "!=" else "")
        if said in seen:
            raise ConditionRepeated(**place)
        seen.add(said)
        request = _add(request, name, sign, value, place)
        at = form.end()
    return request


def _add(
    request: GpuRequest, name: str, sign: str, value: str, place: dict[str, object]
) -> GpuRequest:
    if name.startswith("label."):
        label = name.removeprefix("label.")
        expected = CONDITIONS["label.NAME"].example
        if sign not in CONDITIONS["label.NAME"].signs:
            raise ComparisonUnfit(expected=expected, **place)
        if not label or not value:
            raise ValueUnreadable(expected=expected, **place)
        if sign == "!=":
            return replace(request, not_labels=tuple(sorted((*request.not_labels, (label, value)))))
        return replace(request, labels=tuple(sorted((*request.labels, (label, value)))))
    condition = CONDITIONS.get(name.lower())
    if condition is None:
        raise ConditionUnknown(known=sorted(CONDITIONS), **place)
    if sign not in condition.signs:
        raise ComparisonUnfit(expected=condition.example, **place)
    narrowed = condition.apply(request, sign, value)
    if narrowed is None:
        raise ValueUnreadable(expected=condition.example, **place)
    return narrowed


def write_query(request: GpuRequest) -> str:
    """Write a request as the shortest query that reads back as it."""
    parts = []
    if request.models:
        parts.append("gpu=" + _quoted(",".join(request.models)))
    if request.not_models:
        parts.append("gpu!=" + _quoted(",".join(request.not_models)))
    if request.memory_mib_min is not None:
        gib, rest = divmod(request.memory_mib_min, 1024)
        parts.append(f"memory>={request.memory_mib_min}MiB" if rest else f"memory>={gib}GiB")
    if request.compute_capability_min is not None:
        parts.append(f"compute>={request.compute_capability_min}")
    if request.compute_percent_min is not None:
        parts.append(f"share>={request.compute_percent_min}%")
    if request.driver_min is not None:
        parts.append(f"driver>={request.driver_min}")
    if request.nvlink:
        parts.append(f"nvlink>={request.nvlink_min}" if request.nvlink_min else "nvlink")
    if request.regions:
        parts.append("region=" + _quoted(",".join(request.regions)))
    if request.not_regions:
        parts.append("region!=" + _quoted(",".join(request.not_regions)))
    parts += _apart(request)
    if request.own:
        parts.append("tenant=own")
    parts += [
        f"{word}={','.join(map(str, hosts))}"
        for word, hosts in (("host", request.hosts), ("not-host", request.not_hosts))
        if hosts
    ]
    parts += _promises(request)
    if request.prefer:
        parts.append("prefer=" + ",".join(request.prefer))
    parts += [f"label.{name}={_quoted(value)}" for name, value in request.labels]
    parts += [f"label.{name}!={_quoted(value)}" for name, value in request.not_labels]
    return " ".join(parts)


def _apart(request: GpuRequest) -> Iterator[str]:
    """Write how far the work is to be kept apart."""
    if request.isolation is not None:
        yield f"isolation={request.isolation}"
    if request.sandbox_min is not None:
        yield f"sandbox>={request.sandbox_min}"
    if request.network is not None:
        yield f"network={request.network}"


def _promises(request: GpuRequest) -> Iterator[str]:
    """Write what hosts must have proved, and their owners promise."""
    if request.reliability_min_ppm is not None:
        yield f"reliability>={Decimal(request.reliability_min_ppm) / PPM:f}"
    if request.notice_seconds_min is not None:
        yield "notice>=" + _length(request.notice_seconds_min)
    if request.reclaim_fee_ppm_min is not None:
        yield f"reclaim>={request.reclaim_fee_ppm_min * 100 // PPM}%"
    if request.grace_seconds_min is not None:
        yield "grace>=" + _length(request.grace_seconds_min)
    if request.start_seconds_max is not None:
        yield "starts<=" + _length(request.start_seconds_max)
    if request.availability_min_ppm is not None:
        yield f"availability>={Decimal(request.availability_min_ppm) / PPM:f}"


def _length(seconds: int) -> str:
    unit = next(unit for unit, size in reversed(_SECONDS.items()) if seconds % size == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value
