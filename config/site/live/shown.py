"""Up to where the rows that a page shows have read the event store."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Min
from django.http import HttpRequest

from ledger.eventstore.port import START, Position
from ledger.models import Checkpoint


def shown_through(request: HttpRequest) -> Position:
    """Return the position up to which every read model has read.

    Asked before the rows of a page are: what happens after it, the page may not show.
    """
    names: Sequence[str] = request.read_models  # type: ignore[attr-defined]  # set by Visitors
    least = Checkpoint.objects.filter(name__in=names).aggregate(least=Min("position"))["least"]
    return START if least is None else Position(least)
