"""Times, lengths and sizes as people type them: 30m, 6h, +2h, 22:00, RFC 3339, 50, 500GiB, 2 TB."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_LENGTH = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?\s*([kmgt]i?b)?", re.IGNORECASE)
_UNITS = {
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_WHOLE = re.compile(r"-?[0-9]{1,18}")
SECONDS_MAX = 100 * 366 * 86_400
"""A hundred years: no length that means anything is longer."""


class NotUnderstood(ValueError):
    """The text names no time or length."""


def length_of(text: str) -> int:
    """Read `90m`, `6h`, `1d12h` or `45s` as whole seconds.

    Raises: NotUnderstood.
    """
    match = _LENGTH.fullmatch(text.strip().lower())
    if not text.strip() or match is None or not any(match.groups()):
        raise NotUnderstood(f"{text!r} is no length of time: write 30m, 6h, 1d12h or 45s")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    length = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if length > SECONDS_MAX:
        raise NotUnderstood(f"{text!r} is longer than a hundred years")
    return length


def whole_of(text: str) -> int:
    """Read a whole number: digits 0 to 9 and a minus, nothing else that Python would take.

    Raises: ValueError, which the command line tells with the option's name.
    """
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(text)
    return int(text)


def gib_of(text: str) -> int:
    """Read a size as whole GiB, rounded up: `50` (GiB), `500GiB`, `1.5TiB`, `500 MiB`, `50 GB`.

    KiB, MiB, GiB and TiB are powers of 1024, kB, MB, GB and TB of 1000.
    Raises: NotUnderstood.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise NotUnderstood(f"{text[:40]!r} is no size: write 50 (GiB), 500GiB, 1.5TiB or 50 GB")
    part, unit = match[2] or "", _UNITS[(match[3] or "GiB").lower()]
    return -(-int(match[1] + part) * unit // (int("1" + "0" * len(part)) * 2**30))


def moment_of(text: str, *, now: datetime) -> datetime:
    """Read `now`, `+2h`, `22:00` (the next one, in the zone of `now`) or an RFC 3339 time.

    Raises: NotUnderstood; a time without an offset is not guessed at.
    """
    text = text.strip()
    if text.lower() == "now":
        return now
    if text.startswith("+"):
        return now + timedelta(seconds=length_of(text[1:]))
    clock = _CLOCK.fullmatch(text)
    if clock:
        today = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return today if today > now else today + timedelta(days=1)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotUnderstood(
            f"{text!r} is no time: write now, +2h, 22:00 or 2026-01-05T22:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise NotUnderstood(f"{text!r} has no offset from UTC: add Z, or +01:00")
    return moment
