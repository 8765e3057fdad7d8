"""A long list, a part of it at a time, with ways to the others: no list ends in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.http import HttpRequest

from ledger.domain.whole_numbers import whole_number

SIZE = 100
NUMBER_MAX = 10_000


class Rows(Protocol):
    """What can be cut: a queryset in an order of its own, or a list."""

    def __getitem__(self, key: slice, /) -> Any:
        """Return some of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a list. name: of the list, both in the address and on the page."""

    rows: Sequence[Any]
    name: str
    first: int
    back: str
    on: str

    @property
    def last(self) -> int:
        """Return the number of the last row, counted from 1."""
        return self.first + len(self.rows) - 1


def part_of(request: HttpRequest, rows: Rows, name: str, size: int = SIZE) -> Part:
    """Return the part of a list that the address asks for, and the addresses of its neighbours.

    name: the parameter that counts the parts, from 1; what is no number is the first.
    """
    try:
        number = whole_number(request.GET.get(name, "1"), least=1, most=NUMBER_MAX)
    except ValueError:
        number = 1
    start = (number - 1) * size
    found = list(rows[start : start + size + 1])
    return Part(
        rows=found[:size],
        name=name,
        first=start + 1,
        back=_address(request, name, number - 1) if number > 1 else "",
        on=_address(request, name, number + 1) if len(found) > size else "",
    )


def _address(request: HttpRequest, name: str, number: int) -> str:
    asked = request.GET.copy()
    asked.pop("after", None)
    asked[name] = str(number)
    return f"?{asked.urlencode()}#{name}"
