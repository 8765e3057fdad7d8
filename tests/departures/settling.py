"""What a departure came to, once its leases are over: work lost, time granted, money charged.

Granted time is proved by what agents wrote down themselves and by when the market says that the
right to it ended. Nothing of the market's own sums goes into that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

from ledger.domain.money import nanos_of
from marketplace.sdk.client import Client
from marketplace.sdk.problems import Problem
from tests.departures import spools
from tests.departures.chain import Chain
from tests.departures.ground import Ground
from tests.departures.records import Audit, Billed, Record
from tests.departures.spools import Span, millis
from tests.departures.stints import HOLDING, OVER
from tests.departures.work import STEP_SECONDS
from tests.journeys import books
from tests.journeys.hosts import CONSUMER

SETTLED_SECONDS_MAX = 300.0
"""Half an hour of use in windows of a minute, the last words of a host, and a busy machine."""
PAUSE_SECONDS = 1.0
SILENT, HARDWARE = 505, (507, 509)
T = TypeVar("T")
Uses = Mapping[str, Mapping[str, list[Span]]]
"""By lease, then by GPU."""


class NotSettled(Exception):
    """Something did not come to its end within the time for it."""


def record_of(ground: Ground, run: str, chain: Chain) -> Record:
    """Wait until all is charged; return what became of a departure, also where that fails."""
    first = chain.steps(chain.lease["id"])
    seen: dict[str, Any] = {
        "run": run,
        "number": chain.planned.number,
        "kind": chain.kind,
        "host": chain.host.region,
        "placed_at": chain.placed_at,
        "deadline": chain.deadline,
        "began_at": first[0][1],
        "left_at": chain.left_at,
        "last_word_at": chain.last_word_at,
        "free_by": chain.free_by,
        "free_at": chain.free_at,
        "last_step_at": first[-1][1],
        "room": chain.room,
        "resumed_at": chain.resumed_at,
        "links": chain.links,
        "next_from": chain.next_from,
        "ends_by": chain.ends_by,
    }
    try:
        with ground.market.client(CONSUMER) as api:
            return Record(**seen, **_settled(ground, api, chain))
    except (NotSettled, Problem) as wrong:
        return Record(**seen, trouble=str(wrong)[:400])


def _settled(ground: Ground, api: Client, chain: Chain) -> dict[str, Any]:
    first_id, next_id = chain.lease["id"], chain.following
    leases = [_over(api, each) for each in (first_id, next_id) if each]
    closed_at = datetime.fromisoformat(leases[0]["closed_at"]).timestamp()
    done = max(step for step, at in chain.steps(first_id) if at <= closed_at)
    began = chain.steps(next_id)[0][0] if next_id else 0
    billed, proved = [], []
    for lease in leases:
        bill, spans = _bill(ground, api, lease)
        billed.append(bill)
        proved.append(spans)
    return {
        "closed_at": closed_at,
        "reason": leases[0]["close_reason"]["code"],
        "is_elsewhere": bool(next_id) and leases[1]["host_ids"] != leases[0]["host_ids"],
        "done": done * STEP_SECONDS,
        "lost": max(0, done - began) * STEP_SECONDS,
        "shared_ms": spools.shared(proved[0], proved[1]) if next_id else 0,
        "billed": tuple(billed),
    }


def proved_of(
    ground: Ground, api: Client, lease: Mapping[str, Any], uses: Uses
) -> dict[str, list[Span]]:
    """Return when a lease that is over held which GPU, up to when the right to it ended."""
    used = uses.get(lease["id"], {})
    ends = [millis(lease["ends_at"])]
    if lease["stop_at"]:
        # A host that is taken at once tells so while the work still goes down: that is not its.
        ends.append(millis(lease["stop_at"]))
    match lease["close_reason"]["code"]:
        case code if code == SILENT:
            events = {
                each["name"]: each for each in api.get(f"leases/{lease['id']}/events")["data"]
            }
            ends.append(millis(events["marketplace.lease-ending"]["at"]))
        case code if code in HARDWARE:
            since = millis(lease["starts_at"])
            faults = [ground.spools.fault_of(gpu, since=since) for gpu in used]
            ends += [each for each in faults if each is not None]
    return {gpu: spools.until(spans, min(ends)) for gpu, spans in used.items()}


def _over(api: Client, lease_id: str) -> dict[str, Any]:
    def asked() -> dict[str, Any] | None:
        lease: dict[str, Any] = api.get(f"leases/{lease_id}")
        return lease if lease["state"] in OVER else None

    return _until(asked, why=f"lease {lease_id} is not over")


def _bill(ground: Ground, api: Client, lease: dict[str, Any]) -> tuple[Billed, list[Span]]:
    """Compare what a lease was charged with what is proved of its use; return that and the proof.

    What a host proves late becomes a correction, whatever was final before. So it is looked at
    until it is right; where it is not within the time for it, it is told as it stands then.
    """
    ends = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        use = api.get(f"leases/{lease['id']}/usage")
        used = proved_of(ground, api, lease, ground.spools.uses())
        spans = [each for by_gpu in used.values() for each in by_gpu]
        proved_ms = spools.length(spans)
        bill = Billed(
            lease_id=lease["id"],
            proved_ms=proved_ms,
            granted_ms=use["granted_ms"],
            charged_nanos=nanos_of(use["charged"]),
            due_nanos=books.charge_of(lease, proved_ms).nanos,
        )
        if bill.is_right or time.monotonic() > ends:
            return bill, spans
        time.sleep(PAUSE_SECONDS)


def _until(ask: Callable[[], T | None], *, why: str) -> T:
    ends = time.monotonic() + SETTLED_SECONDS_MAX
    while (answer := ask()) is None:
        if time.monotonic() > ends:
            raise NotSettled(why)
        time.sleep(PAUSE_SECONDS)
    return answer


# --- once all of it is over -------------------------------------------------------------------


def audit(ground: Ground, run: str, departures: int) -> Audit:
    """Look at a market in which nothing runs any more: nothing is open, held, or leased twice."""
    wrong: list[str] = []
    uses, leases = ground.spools.uses(), 0
    held: dict[str, list[tuple[int, int, str]]] = {}
    with ground.market.client(CONSUMER) as api:
        try:
            _until(lambda: _is_quiet(api), why="leases, bids or holds are open")
        except NotSettled as still:
            wrong.append(str(still))
        for lease in api.all("leases"):
            leases += 1
            if lease["state"] in OVER and lease["id"] in uses:
                for gpu, spans in proved_of(ground, api, lease, uses).items():
                    held.setdefault(gpu, []).extend((*span, lease["id"]) for span in spans)
                # Again, for nothing that came later may have changed it.
                bill, _ = _bill(ground, api, lease)
                wrong += [] if bill.is_right else [f"the bill of {lease['id']} is {bill}"]
    wrong += _leased_twice(held)
    with ground.market.client("joan") as api:
        totals = api.get("trial-balance")
        owed = Counter[str]()
        for currency, text in totals["others"].items():
            owed[currency] += books.signed_nanos(text)
        for account in totals["data"]:
            owed[account["currency"]] += books.signed_nanos(account["total"])
    wrong += [f"the ledger is off by {nanos} nano-{name}" for name, nanos in owed.items() if nanos]
    said = ground.market.manage_anyway("doctor").out
    wrong += [line for line in said.splitlines() if line.startswith("FAIL")]
    return Audit(run=run, departures=departures, leases=leases, wrong=tuple(wrong))


def _is_quiet(api: Client) -> bool | None:
    if list(api.all("leases", state=f"scheduled,{HOLDING}")) or list(api.all("bids", state="open")):
        return None
    held = [each for each in api.all("accounts") if books.signed_nanos(each["held"])]
    return None if held else True


def _leased_twice(held: Mapping[str, list[tuple[int, int, str]]]) -> list[str]:
    """Return where two leases had one GPU at once, both by right."""
    return [
        f"{gpu} was leased twice at once: {one} and {other}"
        for gpu, spans in held.items()
        for (_, end, one), (start, _, other) in pairwise(sorted(spans))
        if one != other and start < end
    ]
