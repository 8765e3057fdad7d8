"""How a lease ended, in two sentences at the top of its page, and what its consumer can do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ledger.domain.event import Event
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.close_reasons import FAULTS, REASONS
from marketplace.domain.facts.events import LeaseClosed
from marketplace.domain.leases.attempts import Attempt

GOES_ON = "You need to do nothing: the work goes on by itself."
HOSTS_FAULT = "It was the host's fault: run it again, and it may go to another one."
NEXT: dict[int, str] = {
    close_reasons.WORK_FAILED: "What it printed to stderr, in the log below, usually says why.",
    close_reasons.START_FAILED: (
        "Look whether the command, the image and its digest are right, and whether the host has"
        " what they need; then run it again."
    ),
    close_reasons.FILES_LATE: (
        "Look whether the image is still there under its digest; large files come sooner from a"
        " volume or a folder that the host has seen before."
    ),
    close_reasons.MONEY_SPENT: (
        "Add money to the unit's account, or give the bid a larger budget, before you run it again."
    ),
    close_reasons.AWAITS_MONEY: (
        "Add money to the unit's account: the work goes on by itself, from where it saved itself."
    ),
    close_reasons.PAUSED: (
        "You pay for the time it ran. The rest goes on by itself, by the deadline of its bid."
    ),
    close_reasons.BUDGET_REACHED: (
        "You pay for the time it ran. The rest goes on by itself once a grant, a higher amount or"
        " the next period makes room, by the deadline of its bid."
    ),
    close_reasons.WINDOW_OVER: "Work that needs longer can be extended while it runs.",
}
"""What can be done about it, by the reason of the end."""
WELL = {close_reasons.WORK_DONE, close_reasons.CLOSED_BY_CONSUMER, close_reasons.RESOLD}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a note says. following: what to do; empty where nothing needs to be done."""

    tone: Literal["good", "", "warn", "bad"]
    title: str
    text: str
    following: str = ""


def outcome_of(
    events: Iterable[Event], attempts: Sequence[Attempt], *, mine: bool, goes_on: bool = False
) -> Outcome | None:
    """Return how a lease ended; None: it is not over.

    mine: whoever asks is its consumer. goes_on: another lease or bid has the rest of the work.
    """
    closed = next((event for event in events if isinstance(event, LeaseClosed)), None)
    if closed is None:
        return None
    reason = closed.reason
    following = NEXT.get(reason, HOSTS_FAULT if reason in FAULTS else "") if mine else ""
    if goes_on and following and reason not in close_reasons.PAUSES:
        following = GOES_ON
    why = REASONS.get(reason, f"Reason {reason}.")
    codes = sorted({each.exit_code for each in attempts if each.exit_code is not None})
    if reason == close_reasons.WORK_FAILED:
        wrong = [str(code) for code in codes if code] or ["an error"]
        title = f"The work ended with exit code {' and '.join(wrong)}" if codes else why.rstrip(".")
        return Outcome("bad", title, "You pay for the time it ran." if mine else "", following)
    if reason == close_reasons.WORK_DONE:
        return Outcome("good", "The work finished by itself", "Exit code 0." if codes else "")
    if reason in FAULTS:
        told = [each.reason for each in attempts if each.reason and each.reason != why]
        paid = "You pay for what was proved of its use: nothing where the work never came up."
        text = " ".join([*dict.fromkeys(map(_sentence, told)), *([paid] if mine else [])])
        return Outcome("bad", why.rstrip("."), text, following)
    tone: Literal["", "warn"] = "" if reason in WELL else "warn"
    return Outcome(tone, why.rstrip("."), "", following)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
