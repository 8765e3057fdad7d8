"""The agent's state together with the spool that keeps it: what is in the one is in the other."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from uuid import uuid4, uuid5

from . import over_share
from .cutting import Cut
from .reconcile import Terms
from .sampler import Finding
from .spool import Record, Spool, SpoolFull
from .state import AgentState, iso
from .wire import ReportKind, Unread

log = logging.getLogger(__name__)

DETAIL_LENGTH_MAX = 2_000


class Memory:
    """Recalls the state of earlier runs from the spool and keeps what is new in both."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._trouble = ""
        self.state = AgentState(boot_id=uuid4())
        for segment, record in spool.replay():
            self.state.apply(record, segment)
        if spool.damaged_lines:
            log.warning("%d damaged lines in the spool were skipped", spool.damaged_lines)
        try:
            spool.begin(self.state.head)
            spool.drop_before(self.state.oldest_needed(spool.segment))
        except SpoolFull as error:
            log.error("the spool: %s", error)  # the next record tries again

    def keep(self, records: Sequence[Record], *, urgent: bool = True, sync: bool = False) -> bool:
        """Put records into the spool and the state, all or none; return whether they are kept."""
        before = self._spool.segment
        try:
            segment = self._spool.append(records, urgent=urgent, sync=sync)
        except SpoolFull as error:
            if str(error) != self._trouble:
                log.error("the spool: %s; intervals grow until it takes them again", error)
            self._trouble = str(error)
            return False
        self._trouble = ""
        for record in records:
            self.state.apply(record, segment)
        if segment != before or records[0]["t"] in ("acked", "reported"):
            self._spool.drop_before(self.state.oldest_needed(segment))
        return True

    def believe(self, record: Record) -> None:
        """Take in a record that the spool did not take, for this run only."""
        self.state.apply(record, self._spool.segment)

    def samples(self, cuts: Iterable[Cut], findings: Iterable[tuple[int, Finding]]) -> list[Record]:
        """Return intervals and findings (with their moment) as records with the next numbers."""
        boot, seq = str(self.state.boot_id), self.state.next_seq
        bodies = [("interval", cut.fields) for cut in cuts]
        for at_ms, finding in findings:
            body = {
                "gpu_uuid": finding.gpu_uuid,
                "kind": finding.kind,
                "at": iso(at_ms),
                "detail": finding.detail[:DETAIL_LENGTH_MAX],
            }
            bodies.append(("health", body))
        return [
            {"t": kind, "boot": boot, "body": {"seq": seq + index, **body}}
            for index, (kind, body) in enumerate(bodies)
        ]

    @property
    def bytes_used(self) -> int:
        """Return the size of the spool."""
        return self._spool.bytes_used

    def close(self) -> None:
        """Close the spool."""
        self._spool.close()


def report(
    terms: Terms,
    what: ReportKind,
    at_ms: int,
    *,
    exit_code: int | None = None,
    detail: str = "",
    reclaimed: bool = False,
    commit: str = "",
    left_out: Sequence[str] = (),
    since_ms: int | None = None,
) -> Record:
    """Return the record of a report.

    Its id follows from the lease and its GPUs here, so that a fact has one id only, and the hosts
    of a lease on several hosts have different ones.
    """
    lease_id = terms.lease_id
    half = "ended" if what not in ("fetching", "started") else str(what)
    if what in ("saved", "alive"):
        half = f"{what} {since_ms} {at_ms}" if since_ms is not None else f"{what} {at_ms}"
    report_id = uuid5(lease_id, " ".join([half, *sorted(terms.gpu_uuids)]))
    body: Record = {
        "report_id": str(report_id),
        "lease_id": str(lease_id),
        "what": what,
        "at": iso(at_ms),
        "exit_code": exit_code,
        "detail": detail[:DETAIL_LENGTH_MAX],
    }
    if since_ms is not None:
        body["since"] = iso(since_ms)
    if reclaimed:
        body["reclaimed"] = True
    if what == "stopped" and detail.startswith(over_share.BEGINS):
        body["over_share"] = True
    # Servers of before know neither, and have no work that has them.
    more = {"commit": commit, "left_out": list(left_out)}
    body |= {name: said for name, said in more.items() if said}
    return {"t": "report", "body": body}


def unread_report(unread: Unread, at_ms: int) -> Record:
    """Return the record of the report that a lease fails whose assignment cannot be read here."""
    detail = f"the host's agent is older than the market and cannot read this: {unread.reason}"
    body = {
        "report_id": str(uuid5(unread.lease_id, f"unread {at_ms}")),
        "lease_id": str(unread.lease_id),
        "what": "failed",
        "at": iso(at_ms),
        "exit_code": None,
        "detail": detail[:DETAIL_LENGTH_MAX],
    }
    return {"t": "report", "body": body}
