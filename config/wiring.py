"""Who follows what: the whole reactive side of the system on one page."""

from __future__ import annotations

from config.env import Env
from ledger.eventstore.port import EventStore


def build_store(env: Env) -> EventStore:
    """Return the store that EVENTSTORE_URL names.

    Imports late: a server on PostgreSQL never loads gRPC, and one on memory no database.
    """
    if env.eventstore_url == "postgres":
        from ledger.eventstore.postgres import PostgresStore

        return PostgresStore()
    if env.eventstore_url == "memory":
        from ledger.eventstore.memory import MemoryStore

        return MemoryStore()
    if env.eventstore_url.startswith("esdb"):
        from ledger.eventstore.esdb import EsdbStore

        return EsdbStore(env.eventstore_url)
    raise SystemExit(
        f"EVENTSTORE_URL must be postgres, memory or esdb://…, not {env.eventstore_url!r}"
    )
