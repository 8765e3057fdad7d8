"""What an older market does not know of what this agent says, learnt from its refusals.

A field that it does not know is not said to it any more; a health event or a report that it cannot
read is set aside alone. What is billed is never dropped for that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any
from uuid import UUID

from .strict import Message
from .uplink import Refused
from .wire import Health, Interval, Registration, Report

log = logging.getLogger(__name__)

NOT_KNOWN = "is not a known field"
LISTS: Mapping[str, type[Message]] = {"batch": Interval, "health": Health, "reports": Report}
PLACE = re.compile(r"(?P<list>batch|health|reports)\[(?P<index>[0-9]{1,6})\]\.(?P<field>\w+)")


@dataclass(slots=True)
class Unspoken:
    """What is not said to one market. aside: samples that it cannot read, by run and number."""

    fields: set[tuple[str, str]] = field(default_factory=set)
    aside: set[tuple[UUID, int]] = field(default_factory=set)

    def plainer(self, said: Registration, refusal: Refused) -> Registration | None:
        """Return a registration without the field that was refused; None: it is needed."""
        name = re.split(r"[.\[]", refusal.place)[0]
        usual = _optional(Registration).get(name, MISSING)
        if refusal.is_about_us or usual is MISSING or getattr(said, name) == usual:
            return None
        log.warning("the market is older than this agent: it does not take %s", refusal.place)
        plain: dict[str, Any] = {name: usual}
        return replace(said, **plain)

    def learns(self, refusal: Refused) -> bool:
        """Take in that a field is not known; tell if the message goes without it."""
        found = None if refusal.is_about_us else PLACE.fullmatch(refusal.place)
        if found is None or refusal.reason != NOT_KNOWN:
            return False
        which = found["list"], found["field"]
        if which in self.fields or found["field"] not in _optional(LISTS[found["list"]]):
            return False
        self.fields.add(which)
        log.warning("the market is older than this agent: it does not know %s of %s", *which[::-1])
        return True

    def alone(self, refusal: Refused, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the health event or report that a refusal is about; None: it is of none alone.

        A report only where its kind is not known: what else is wrong with one is our own fault.
        """
        found = None if refusal.is_about_us else PLACE.fullmatch(refusal.place)
        if found is None or found["list"] == "batch":
            return None
        if found["list"] == "reports" and found["field"] != "what":
            return None
        items = message.get(found["list"], ())
        index = int(found["index"])
        return items[index] if index < len(items) else None

    def over(self, boot_id: UUID, seq: int) -> None:
        """Forget what was set aside of a run, up to this number."""
        self.aside = {each for each in self.aside if each[0] != boot_id or each[1] > seq}

    def said(self, name: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the items of a list without what is not known of them."""
        left_out = {each for of, each in self.fields if of == name}
        if not left_out:
            return list(items)
        return [{k: v for k, v in item.items() if k not in left_out} for item in items]


def _optional(kind: type[Message]) -> dict[str, Any]:
    every: Any = kind
    return {each.name: each.default for each in fields(every) if each.default is not MISSING}
