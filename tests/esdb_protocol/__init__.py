"""A server that speaks EventStoreDB's gRPC protocol, so that our client code meets the real wire.

It is a test double, not a database: it keeps its log in memory (and in a journal file, so that a
killed server can come back). What it proves and what it cannot prove is written down in
`config/docs/event-store.md`.

Start it alone with `python -m tests.esdb_protocol --port 0`; tests start it through
`tests.esdb_protocol.process`.

Left out on purpose, and answered UNIMPLEMENTED: persistent subscriptions and projections, which
the product does not use; users and access lists; links between streams.
"""
