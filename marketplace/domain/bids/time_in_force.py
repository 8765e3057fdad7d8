"""How long a bid waits, in words: one of three, or a moment.

`deadline`: as long as it can be met. `immediate-or-cancel`: it takes at once what there is, within
its ranges, or ends. `fill-or-kill`: all of it at once, or it ends. A moment: until then.
"""

from __future__ import annotations

import re
from datetime import datetime

from ledger.domain.refusal import Invalid
from marketplace.domain.bids.bounds import in_utc
from marketplace.domain.facts.events import GoodTill

WORDS: dict[str, GoodTill] = {
    "deadline": "good-till-deadline",
    "immediate-or-cancel": "immediate-or-cancel",
    "fill-or-kill": "fill-or-kill",
}
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\S{1,6}")


class GoodTillUnreadable(Invalid):
    """A bid is good till its deadline, a moment such as 2026-01-05T18:00:00Z, or not at all.

    Write deadline, immediate-or-cancel, fill-or-kill or a moment.
    """


def read_good_till(text: str) -> tuple[GoodTill, datetime | None]:
    """Return how long a bid waits, and until which moment if it is one.

    Raises: GoodTillUnreadable, TimeWithoutZone.
    """
    known = WORDS.get(text)
    if known is not None:
        return known, None
    try:
        if not _MOMENT.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise GoodTillUnreadable(given=text[:40]) from None
    return "good-till-moment", in_utc(moment)


def write_good_till(good_till: str, good_until: datetime | None) -> str:
    """Write it so that it reads back the same."""
    if good_until is not None:
        return good_until.isoformat().replace("+00:00", "Z")
    return next(word for word, known in WORDS.items() if known == good_till)
