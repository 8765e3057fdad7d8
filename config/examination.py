"""What `doctor` looks at: first whether the installation works, then whether the market is right.

The invariants are numbered as in the design: each is asked of the live rows in one query.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from config.database.private import open_entries
from config.database.roles import means_against_guard
from config.operations.health import (
    Finding,
    compiled_kernels,
    findings,
    payments_carried_out,
    room_for_samples,
)
from config.processes import fitness
from config.processes.starting import TAKEN_MAX
from config.security.signing_keys import disagreement
from config.wiring import keeping_of
from ledger import parking
from ledger.access import Actor
from ledger.carrying import carried_wrongly
from ledger.closing import exports_that_differ
from ledger.delivering import overdue
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore import codec, default_store
from ledger.eventstore.port import StoreError
from ledger.funding import setup
from ledger.inviting import can_mail
from ledger.invoicing import documents_that_differ
from ledger.queries.money import disagreements
from listings.domain.markets import read_markets
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.keeper import is_overdue
from marketplace.queries.blobs import Looked, look_at_blobs
from marketplace.snapshots import snapshots_for
from marketplace.storage import default_storage
from metering.queries.ends import NAMED_MAX, unproved_ends
from metering.queries.progress import lagging_meters, uncharged_windows
from metering.queries.usage import agents

EVERYTHING = Actor(tenant_id=PLATFORM_ID, roles=frozenset({"operator"}), is_platform=True)
CLOCK_SKEW_MAX = timedelta(seconds=2)
DISK_FREE_BYTES_MIN = 1 << 30

# A lease's right ends where it is cut; that its work has ended is reported moments later.
_DOUBLE_LEASED = """
SELECT a.lease_id, b.lease_id
FROM marketplace_leaserow a
JOIN marketplace_leaserow b
  ON a.lease_id < b.lease_id AND a.gpu_uuids && b.gpu_uuids
WHERE tstzrange(a.starts_at, greatest(a.starts_at, least(a.ends_at, a.stop_at, a.closed_at)))
   && tstzrange(b.starts_at, greatest(b.starts_at, least(b.ends_at, b.stop_at, b.closed_at)))
LIMIT 5
"""
_WITHOUT_REASON = """
SELECT lease_id FROM marketplace_leaserow
WHERE state IN ('closed', 'failed')
  AND (close_reason IS NULL OR NOT close_reason = ANY (%s)) LIMIT 5
"""
_OVERDUE = """
SELECT lease_id FROM marketplace_leaserow
WHERE state NOT IN ('closed', 'failed') AND least(ends_at, stop_at) < %s LIMIT 5
"""
OVERDUE_AFTER = timedelta(minutes=2)


def examine(*, whole: bool, every_file: bool = False) -> Iterator[Finding]:
    """Look at everything; `whole` also reads every event, to check the hash chain, and storage.

    every_file: all that is in storage; else a sample.
    """
    failed = False
    for finding in findings():
        failed |= not finding.ok
        yield finding
    try:
        yield from _installation()
        if not failed:
            yield from _invariants()
        if whole:
            yield _chain()
            yield _files(every_file=every_file)
    except (DatabaseError, StoreError) as lost:
        yield Finding("examination", False, f"could not be finished: {str(lost).strip()}")


_GUARD = """
SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                WHERE t.tgrelid = 'es_event'::regclass AND t.tgname = 'es_event_append_only'
                  AND t.tgenabled IN ('O', 'A') AND p.prosrc LIKE '%RAISE EXCEPTION%')
"""


def _guard() -> Finding:
    """Look if the record refuses changes, and against whom that holds."""
    name = "the record refuses changes"
    with connection.cursor() as cursor:
        cursor.execute(_GUARD)
        row = cursor.fetchone()
        ours, owner, means = means_against_guard(connection.connection)
    if not (row and row[0]):
        return Finding(name, False, "ALTER TABLE es_event ENABLE TRIGGER ALL, as its owner")
    if means:
        told = f"not against {ours}, as whom the market works: it {', '.join(means)}"
        return Finding(name, True, f'{told} (/docs/operating/, "Two roles")')
    return Finding(
        name, True, f"also to {ours}, as whom the market works; not to {owner} or a superuser"
    )


def _installation() -> Iterator[Finding]:
    missing = codec.missing_upcasters()
    yield Finding("old events readable", not missing, ", ".join(missing))
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp(), current_setting('fsync')")
        row = cursor.fetchone()
    assert row is not None
    skew = abs(datetime.now(UTC) - row[0])
    yield Finding(
        "clocks agree",
        skew <= CLOCK_SKEW_MAX,
        "" if skew <= CLOCK_SKEW_MAX else f"database and server are {skew} apart: run NTP on both",
    )
    yield Finding(
        "commits are durable",
        row[1] == "on",
        "" if row[1] == "on" else "PostgreSQL runs with fsync off: set fsync = on",
    )
    pooled = fitness.pooler()
    yield Finding("connections are ours alone", not pooled, pooled)
    taken, most = fitness.connections_taken()
    few = taken > TAKEN_MAX * most
    yield Finding(
        "connections are left",
        not few,
        f"{taken} of {most} are taken: raise max_connections (/docs/scale/)" if few else "",
    )
    told, _at_fault = disagreement()
    yield Finding("one session key", not told, told)
    yield _guard()
    free = shutil.disk_usage(settings.HOME).free
    yield Finding(
        "disk space",
        free >= DISK_FREE_BYTES_MIN,
        f"{free >> 20} MiB free under {settings.HOME}" if free < DISK_FREE_BYTES_MIN else "",
    )
    opened = [str(each.relative_to(settings.HOME.parent)) for each in open_entries(settings.HOME)]
    yield Finding(
        "the data directory is private",
        not opened,
        f"others may read {', '.join(opened[:5])}: chmod go-rwx, as its owner" if opened else "",
    )
    poll_seconds = settings.ENV.agent_poll_seconds
    seen = agents(EVERYTHING, now=datetime.now(UTC), poll_seconds=poll_seconds)
    silent = [agent.title for agent in seen if agent.standing == "silent"]
    yield Finding(
        "agents answer",
        not silent,
        f"silent: {', '.join(silent)}; look at the agent's log on these hosts" if silent else "",
    )
    yield compiled_kernels()
    yield room_for_samples()
    yield _reactions()
    yield _deliveries()
    yield _payments()
    yield from _snapshots()


def _reactions() -> Finding:
    """Look for events that policies have failed at again and again."""
    rows = list(parking.set_aside()[:5])
    told = "; ".join(f"{row.policy} at {row.type}@{row.position}: {row.error}" for row in rows)
    return Finding(
        "every event is reacted to", not rows, f"{told}. `manage.py parked`" if rows else ""
    )


def _deliveries() -> Finding:
    """Look if notices that are to go out do so; without a mail server inboxes have everything."""
    late = overdue(now=datetime.now(UTC))
    mail = "" if can_mail() else "no mail server: notices are in inboxes and at webhooks alone"
    told = f"{late} wait: is `run deliveries` up?" if late else mail
    return Finding("notices go out", not late, told)


def _payments() -> Finding:
    """Say how payments are taken, and look if any were given up."""
    lost = payments_carried_out()
    return Finding("card payments", lost.ok, lost.detail or setup.words())


def _snapshots() -> Iterator[Finding]:
    """Look if somebody keeps the books: without, each start of an engine takes longer."""
    store = default_store()
    markets = [each.name for each in read_markets(settings.ENV.market, settings.ENV.markets)]
    late = [name for name in markets if is_overdue(store, name, snapshots_for(store))]
    names = " ".join(keeping_of(settings.ENV, name) for name in late)
    yield Finding("snapshots are kept", not late, f"is `run {names}` up?" if late else "")


def _invariants() -> Iterator[Finding]:
    yield _none_found("I1 no GPU is leased twice", _DOUBLE_LEASED, [])
    wrong = disagreements() + carried_wrongly(default_store())
    yield Finding("I2 I3 the books balance", not wrong, "; ".join(wrong[:5]))
    other = exports_that_differ()
    yield Finding("exports of closed months stand", not other, "; ".join(other[:5]))
    papers = documents_that_differ()
    yield Finding("files of invoices are what they were", not papers, "; ".join(papers[:5]))
    yield _none_found("I6 every lease closed with a reason", _WITHOUT_REASON, [sorted(REASONS)])
    now = datetime.now(UTC)
    left = uncharged_windows(now=now, older_than=OVERDUE_AFTER)
    told = f"{left} usage windows; the log of `run charges` says why" if left else ""
    yield Finding("I4 all rated use is charged", not left, told)
    unrated = timedelta(seconds=2 * settings.ENV.usage_window_seconds) + OVERDUE_AFTER
    lagging = lagging_meters(now=now, older_than=unrated)
    told = f"leases {', '.join(map(str, lagging[:5]))}: is the host silent?" if lagging else ""
    yield Finding("every running lease is rated", not lagging, told)
    late = now - OVERDUE_AFTER
    yield _none_found("I7 no deadline was missed in the books", _OVERDUE, [late])
    doubts = unproved_ends(EVERYTHING, now=now, tolerance=OVERDUE_AFTER)
    told = "; ".join(doubts[:NAMED_MAX])
    told += f"; and {len(doubts) - NAMED_MAX} more" if len(doubts) > NAMED_MAX else ""
    yield Finding("I7 hosts report that work ended with its lease", not doubts, told)


def _none_found(name: str, query: str, parameters: Sequence[Any]) -> Finding:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        found = cursor.fetchall()
    return Finding(name, not found, "; ".join(" and ".join(map(str, row)) for row in found))


def _chain() -> Finding:
    report = default_store().verify()
    detail = (
        f"{report.checked} events"
        if report.ok
        else (f"position {report.broken_at}: {report.detail}. Compare with a backup of the store")
    )
    return Finding("the record is unchanged", report.ok, detail)


def _files(*, every_file: bool) -> Finding:
    """Look if folders, results and volumes can be read as they were kept."""
    name, looked = "files are as they were kept", look_at_blobs(default_storage(), whole=every_file)
    told = f"{looked.read} of {looked.used} parts looked at"
    if not every_file and looked.read < looked.used:
        told += " (the newest and random ones; all: --whole)"
    if looked.unused:
        told += f"; in no folder: {looked.unused} (`run old-blobs` removes these in time)"
    if looked.away:
        told = f"the storage does not answer ({looked.away}); {told}"
    if looked.wrong:
        ours = [f"{each.path} is {each.state}: {', '.join(each.uses)}" for each in looked.named]
        more = looked.wrong - len(ours)
        ours += [f"and {more} more"] if more else []
        told = f"{told}. {'; '.join(ours)}. {_mending(looked)}"
    return Finding(name, not looked.wrong and not looked.away, told)


def _mending(looked: Looked) -> str:
    if looked.read > 1 and looked.states["missing"] == looked.read:
        return "None of them is there: is OFFPEAK_STORAGE what it was, and its disk mounted?"
    return 'Put them back from a backup (/docs/operating/, "Files are missing or damaged")'
