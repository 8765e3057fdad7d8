"""`offpeak leases price`, `agree` and `decline`: another price, where all sides agree."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer

from .forms import money
from .session import Yes, confirm, session_of
from .spoken import moment_of

COLUMNS = (
    ("id", "proposal"),
    ("price", "price per GPU-hour", money),
    ("before", "instead of", money),
    ("since", "from"),
    ("state", "state"),
    ("answer_by", "answer by"),
    ("waits_for_you", "your answer is asked"),
    ("why", "reason"),
)
SHOWN_MAX = 200
NONE = "No other price was proposed. offpeak leases price LEASE --propose 1.20 --from +2h"


def price(
    context: typer.Context,
    lease: UUID,
    propose: Annotated[
        str | None, typer.Option(help="another price per GPU-hour, if all sides agree")
    ] = None,
    since: Annotated[
        str, typer.Option("--from", help="from when on: +2h, 20:00, RFC 3339")
    ] = "+1h",
    answer_by: Annotated[
        str | None, typer.Option(help="until when it can be answered; else a day")
    ] = None,
    why: Annotated[str, typer.Option(help="the reason, which the other side reads")] = "",
) -> None:
    """Show the prices proposed for a lease, or propose one, as its consumer or an owner."""
    session = session_of(context)
    after = None
    if propose is not None:
        now = datetime.now().astimezone()
        asked = {"price": propose, "since": moment_of(since, now=now).isoformat(), "why": why}
        if answer_by is not None:
            asked["answer_by"] = moment_of(answer_by, now=now).isoformat()
        after = session.client.post(f"leases/{lease}/prices", asked)["position"]
    found = session.client.all(f"leases/{lease}/prices", limit=SHOWN_MAX, after=after)
    session.printer.table(found, COLUMNS, empty=NONE)


def agree(context: typer.Context, lease: UUID, proposal: UUID, yes: Yes = False) -> None:
    """Agree to a price that the other side proposed: what it costs at most is set aside."""
    session = session_of(context)
    confirm(session, "Agree? Use from then on is charged at that price.", yes=yes)
    _answered(context, lease, proposal, "agree", {})


def decline(
    context: typer.Context,
    lease: UUID,
    proposal: UUID,
    why: Annotated[str, typer.Option(help="the reason, which the other side reads")] = "",
) -> None:
    """Decline a price, or withdraw the one that you proposed: the price stays."""
    _answered(context, lease, proposal, "decline", {"why": why})


def _answered(
    context: typer.Context, lease: UUID, proposal: UUID, what: str, body: dict[str, str]
) -> None:
    session = session_of(context)
    done = session.client.post(f"leases/{lease}/prices/{proposal}/{what}", body or None)
    found = session.client.all(f"leases/{lease}/prices", limit=SHOWN_MAX, after=done["position"])
    session.printer.table(found, COLUMNS, empty=NONE)
