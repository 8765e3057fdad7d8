"""The services on a port: Streams and Gossip as clients expect them, and our own Control."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
from esdbclient.protos.Grpc import (
    gossip_pb2,
    gossip_pb2_grpc,
    shared_pb2,
    streams_pb2,
    streams_pb2_grpc,
)

from tests.esdb_protocol.faults import Faults, control_handler
from tests.esdb_protocol.log import Log, open_log
from tests.esdb_protocol.reading import Reader
from tests.esdb_protocol.relay import Relay
from tests.esdb_protocol.writing import Writer

CALLS_AT_ONCE_MAX = 64  # a live subscription occupies one for as long as it lasts
MESSAGE_BYTES_MAX = 17 * 1024 * 1024


class Streams(streams_pb2_grpc.StreamsServicer):
    """The service that does the work."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    def Append(  # noqa: N802  # the protocol's name
        self, requests: Iterator[streams_pb2.AppendReq], context: grpc.ServicerContext
    ) -> streams_pb2.AppendResp:
        """Write events to one stream."""
        return self._writer.append(requests, context)

    def BatchAppend(  # noqa: N802  # the protocol's name
        self, requests: Iterator[streams_pb2.BatchAppendReq], context: grpc.ServicerContext
    ) -> Iterator[streams_pb2.BatchAppendResp]:
        """Write batches, each to one stream and whole."""
        return self._writer.batch_append(requests, context)

    def Read(  # noqa: N802  # the protocol's name
        self, request: streams_pb2.ReadReq, context: grpc.ServicerContext
    ) -> Iterator[streams_pb2.ReadResp]:
        """Read a stream or the whole log, once or following it."""
        return self._reader.read(request, context)

    def Delete(  # noqa: N802  # the protocol's name
        self, request: streams_pb2.DeleteReq, context: grpc.ServicerContext
    ) -> streams_pb2.DeleteResp:
        """Hide a stream's events."""
        return self._writer.delete(request, context)

    def Tombstone(  # noqa: N802  # the protocol's name
        self, request: streams_pb2.TombstoneReq, context: grpc.ServicerContext
    ) -> streams_pb2.TombstoneResp:
        """Close a stream for ever."""
        return self._writer.tombstone(request, context)


class Gossip(gossip_pb2_grpc.GossipServicer):
    """A cluster of one, for clients that look for the leader first (esdb+discover)."""

    def __init__(self, port: int) -> None:
        self._port = port

    def Read(  # noqa: N802  # the protocol's name
        self, request: shared_pb2.Empty, context: grpc.ServicerContext
    ) -> gossip_pb2.ClusterInfo:
        """Name the only member."""
        member = gossip_pb2.MemberInfo(
            state=gossip_pb2.MemberInfo.Leader,
            is_alive=True,
            http_end_point=gossip_pb2.EndPoint(address="127.0.0.1", port=self._port),
        )
        return gossip_pb2.ClusterInfo(members=[member])


@dataclass(frozen=True, slots=True)
class Serving:
    """A started server; `port` is the one to connect to."""

    port: int
    log: Log
    faults: Faults
    server: grpc.Server


def serve(port: int = 0, journal: Path | None = None) -> Serving:
    """Start serving on 127.0.0.1, with what `journal` holds from an earlier run."""
    log = open_log(journal)
    faults = Faults()
    relay = Relay(port)
    server = grpc.server(
        ThreadPoolExecutor(CALLS_AT_ONCE_MAX),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.so_reuseport", 0),
        ],
    )
    backend_port = server.add_insecure_port("127.0.0.1:0")
    streams_pb2_grpc.add_StreamsServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        Streams(Writer(log, faults, relay.cut), Reader(log, faults)), server
    )
    gossip_pb2_grpc.add_GossipServicer_to_server(  # type: ignore[no-untyped-call]  # generated
        Gossip(relay.port), server
    )

    def overwrite(stream: str, revision: int, text: str) -> None:
        log.overwrite(stream, revision, text.encode())

    server.add_generic_rpc_handlers(
        (control_handler({"faults": faults.set, "overwrite": overwrite}),)
    )
    server.start()
    relay.start(backend_port)
    return Serving(relay.port, log, faults, server)
