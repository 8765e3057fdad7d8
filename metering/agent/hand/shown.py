"""How a host stands, for its owner: `offpeak-agent status`, and what `/metrics` counts.

The agent keeps the last account of itself in a file of its state directory, so that there is one
when no agent runs: then it says of when it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import VERSION
from ..courier import Courier
from ..filler import Filler
from ..reconcile import Held
from ..shares import in_the_way
from ..state import AgentState
from ..wire import Gpu, Registration
from .freeing import agent_runs, living
from .switch import Switch, read_word
from .taking import stricter

FILE = "status.json"
LOOKED_MS = 2_000
WRITTEN_MS = 30_000
"""How often the account is written where nothing but time changed."""

WORK = {"none": "not started", "running": "running", "ended": "ended"}
HANDS = {
    "all": "takes work",
    "paused": "paused: takes no new work, what runs goes on",
    "draining": "draining: takes no new work, what runs ends with its notice",
    "released": "released: has no work, and takes none",
}


@dataclass(slots=True)
class Account:
    """Writes the account down when it says something new, or after a while."""

    state_dir: Path
    _said: dict[str, Any] = field(default_factory=dict)
    _written_ms: int = 0
    _looked_ms: int = 0

    def keep(self, tell: Callable[[], dict[str, Any]], now_ms: int) -> None:
        """Write it, where it is due; a disk that does not take it is in nobody's way."""
        if now_ms - self._looked_ms < LOOKED_MS:
            return
        self._looked_ms, status = now_ms, tell()
        steady = {k: v for k, v in status.items() if k not in ("at_ms", "server", "spool", "kept")}
        if steady == self._said and now_ms - self._written_ms < WRITTEN_MS:
            return
        with suppress(OSError):
            new = self.state_dir / f"{FILE}.new"
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w") as text:
                text.write(json.dumps(status))
            os.replace(new, self.state_dir / FILE)
            self._said, self._written_ms = steady, now_ms


def account_of(
    hostname: str,
    now_ms: int,
    *,
    state: AgentState,
    leases: Sequence[Held],
    registration: Registration | None,
    gpus: Sequence[Gpu],
    faulty: Collection[str],
    kept_ms: Mapping[str, int],
    filler: Filler,
    switch: Switch,
    courier: Courier,
    spool_bytes: int,
) -> dict[str, Any]:
    """Return how a host stands, as plain values."""
    running = [held for held in leases if held.work == "running"]
    cards = set(filler.cards)

    def use(uuid: str) -> str:
        if uuid in faulty:
            return "faulty"
        holder = [h for h in running if any(in_the_way(uuid, each) for each in h.terms.gpu_uuids)]
        if holder:
            return "leased to " + ", ".join(str(held.terms.lease_id) for held in holder)
        return "filler" if uuid in cards else "idle"

    return {
        "at_ms": now_ms,
        "agent": {"version": VERSION, "pid": os.getpid(), "boot_id": str(state.boot_id)},
        "hostname": hostname,
        "hand": {
            "taking": switch.taking,
            "at_host": switch.word.taking,
            "on_market": switch.market,
            "since_ms": switch.word.since_ms,
        },
        "server": {
            "reached_ms": courier.reached_ms,
            "trouble": courier.trouble,
            "set_aside": courier.set_aside,
        },
        "level": "" if registration is None else registration.sandbox,
        "abilities": [] if registration is None else list(registration.abilities),
        "gpus": [{"uuid": gpu.uuid, "model": gpu.model, "use": use(gpu.uuid)} for gpu in gpus],
        "leases": [_lease(held) for held in leases],
        "kept": {"granted_ms": kept_ms["granted"], "busy_ms": kept_ms["busy"]},
        "filler": {
            "command": list(filler.command),
            "cards": filler.cards,
            "starts": filler.starts,
            "trouble": filler.trouble,
        },
        "spool": {"bytes": spool_bytes, "waiting": sum(1 for _ in state.waiting())},
    }


def _lease(held: Held) -> dict[str, Any]:
    return {
        "lease_id": str(held.terms.lease_id),
        "gpu_uuids": list(held.terms.gpu_uuids),
        "state": WORK[held.work],
        "starts_ms": held.terms.starts_ms,
        "until_ms": held.terms.deadline_ms,
        "grace_ms": held.terms.grace_ms,
    }


def last_account(state_dir: Path) -> dict[str, Any]:
    """Return the account of an agent that does not answer, with what can be seen without it."""
    try:
        status: dict[str, Any] = json.loads((state_dir / FILE).read_text())
    except (OSError, ValueError):
        status = {}
    word = read_word(state_dir)
    market = status.get("hand", {}).get("on_market", "all")
    status["hand"] = {
        "taking": stricter(word.taking, market),
        "at_host": word.taking,
        "on_market": market,
        "since_ms": word.since_ms,
    }
    spool = state_dir / "spool"
    sizes = [each.stat().st_size for each in spool.iterdir()] if spool.is_dir() else []
    status["spool"] = {**status.get("spool", {}), "bytes": sum(sizes)}
    alive = living(state_dir)
    for lease in status.get("leases", []):
        if lease["state"] == "running" and lease["lease_id"] not in alive:
            lease["state"] = "ended"
    status["living"] = alive
    status["agent"] = {**status.get("agent", {}), "runs": agent_runs(state_dir)}
    return status


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the account as a person reads it."""
    agent, hand = status.get("agent", {}), status["hand"]
    version = agent.get("version", "")
    runs = "runs" if agent.get("answers") else "hangs" if agent.get("runs") else "does not run"
    as_of = (
        ""
        if agent.get("answers") or "at_ms" not in status
        else (f"; what follows is of {_moment(status['at_ms'])}")
    )
    yield f"agent     {' '.join(filter(None, [version, runs]))}{as_of}"
    if status.get("hostname"):
        yield f"host      {status['hostname']}"
    where = "" if hand["at_host"] == hand["taking"] else " (by the switch on the market)"
    since = f", since {_moment(hand['since_ms'])}" if hand["at_host"] != "all" else ""
    yield f"hand      {HANDS[hand['taking']]}{where}{since}"
    server = status.get("server", {})
    reached = server.get("reached_ms")
    trouble = f"; {server['trouble']}" if server.get("trouble") else ""
    yield f"server    {'not reached' if not reached else f'reached {_moment(reached)}'}{trouble}"
    if count := server.get("set_aside"):
        yield f"          {count} messages that it refuses were set aside, see refused.jsonl"
    if "level" in status:
        yield f"level     {status['level'] or 'none'}; can {', '.join(status['abilities']) or '-'}"
    for gpu in status.get("gpus", []):
        yield f"gpu       {gpu['uuid']}  {gpu['model']}  {gpu['use']}"
    for lease in status.get("leases", []):
        yield (
            f"lease     {lease['lease_id']}  {lease['state']}  until {_moment(lease['until_ms'])}"
            f"  {', '.join(lease['gpu_uuids'])}"
        )
    if not status.get("leases"):
        yield "lease     none"
    for each in status.get("living", []):
        yield f"lives     {each}"
    filler = status.get("filler", {})
    if filler.get("command"):
        trouble = f"; {filler['trouble']}" if filler.get("trouble") else ""
        yield f"filler    on {len(filler['cards'])} cards, {filler['starts']} starts{trouble}"
    spool = status.get("spool", {})
    waiting = f", {spool['waiting']} messages wait" if "waiting" in spool else ""
    yield f"spool     {spool.get('bytes', 0)} bytes{waiting}"


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
