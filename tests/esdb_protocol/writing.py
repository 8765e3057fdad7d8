"""The writing half of the Streams service: Append, BatchAppend, Delete, Tombstone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, Protocol
from uuid import UUID

import grpc
from esdbclient.protos.Grpc import code_pb2, shared_pb2, status_pb2, streams_pb2
from google.protobuf import any_pb2, empty_pb2
from google.protobuf.message import Message

from tests.esdb_protocol.faults import Faults
from tests.esdb_protocol.log import Expected, Log, Proposed, StreamGone, Written, WrongVersion

APPEND_BYTES_MAX = 1024 * 1024  # the real server's default


class _OnWire(Protocol):
    """What Append and BatchAppend call a proposed message."""

    @property
    def id(self) -> shared_pb2.UUID: ...
    @property
    def data(self) -> bytes: ...
    @property
    def custom_metadata(self) -> bytes: ...


class TooLarge(Exception):
    """The events of one append exceed APPEND_BYTES_MAX together."""


class Writer:
    """Turns writing calls into changes of the log, and the ordered faults into trouble."""

    def __init__(self, log: Log, faults: Faults, cut: Callable[[str], None]) -> None:
        self._log = log
        self._faults = faults
        self._cut = cut

    def append(
        self, requests: Iterator[streams_pb2.AppendReq], context: grpc.ServicerContext
    ) -> streams_pb2.AppendResp:
        """Answer Append: first the options, then one message per event."""
        options = next(requests).options
        stream = options.stream_identifier.stream_name.decode()
        proposed = [_proposed(request.proposed_message) for request in requests]
        try:
            written = self._write(stream, _expected_by_revision(options), proposed, context)
        except WrongVersion as wrong:
            refusal = streams_pb2.AppendResp.WrongExpectedVersion()
            if wrong.current < 0:
                refusal.current_no_stream.CopyFrom(shared_pb2.Empty())
            else:
                refusal.current_revision = wrong.current
            return streams_pb2.AppendResp(wrong_expected_version=refusal)
        except StreamGone:
            _abort_deleted(context, stream)
        except TooLarge:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "Maximum Append Size Exceeded.")
        position = streams_pb2.AppendResp.Position(
            commit_position=written.position, prepare_position=written.position
        )
        return streams_pb2.AppendResp(
            success=streams_pb2.AppendResp.Success(
                current_revision=written.revision, position=position
            )
        )

    def batch_append(
        self, requests: Iterable[streams_pb2.BatchAppendReq], context: grpc.ServicerContext
    ) -> Iterator[streams_pb2.BatchAppendResp]:
        """Answer BatchAppend: batches told apart by correlation id, each answered when final."""
        open_batches: dict[str, tuple[streams_pb2.BatchAppendReq.Options, list[Proposed]]] = {}
        for request in requests:
            batch = request.correlation_id.string
            if request.HasField("options"):
                open_batches[batch] = (request.options, [])
            open_batches[batch][1].extend(map(_proposed, request.proposed_messages))
            if request.is_final:
                options, proposed = open_batches.pop(batch)
                answer = self._batch(options, proposed, context)
                answer.correlation_id.CopyFrom(request.correlation_id)
                yield answer

    def delete(
        self, request: streams_pb2.DeleteReq, context: grpc.ServicerContext
    ) -> streams_pb2.DeleteResp:
        """Answer Delete: the events are hidden, the revisions go on counting."""
        at = self._remove(request.options, self._log.delete, context)
        position = streams_pb2.DeleteResp.Position(commit_position=at, prepare_position=at)
        return streams_pb2.DeleteResp(position=position)

    def tombstone(
        self, request: streams_pb2.TombstoneReq, context: grpc.ServicerContext
    ) -> streams_pb2.TombstoneResp:
        """Answer Tombstone: the stream is closed for ever."""
        at = self._remove(request.options, self._log.tombstone, context)
        position = streams_pb2.TombstoneResp.Position(commit_position=at, prepare_position=at)
        return streams_pb2.TombstoneResp(position=position)

    def _batch(
        self,
        options: streams_pb2.BatchAppendReq.Options,
        proposed: Sequence[Proposed],
        context: grpc.ServicerContext,
    ) -> streams_pb2.BatchAppendResp:
        stream = options.stream_identifier.stream_name.decode()
        answer = streams_pb2.BatchAppendResp(stream_identifier=options.stream_identifier)
        try:
            written = self._write(stream, _expected_by_position(options), proposed, context)
        except WrongVersion as wrong:
            refusal = shared_pb2.WrongExpectedVersion()
            if wrong.current < 0:
                refusal.current_no_stream.CopyFrom(empty_pb2.Empty())
            else:
                refusal.current_stream_revision = wrong.current
            answer.error.CopyFrom(_status("WrongExpectedVersion", refusal))
        except StreamGone:
            gone = shared_pb2.StreamDeleted(stream_identifier=options.stream_identifier)
            answer.error.CopyFrom(_status("StreamDeleted", gone))
        except TooLarge:
            limit = shared_pb2.MaximumAppendSizeExceeded(maxAppendSize=APPEND_BYTES_MAX)
            answer.error.CopyFrom(_status("MaximumAppendSizeExceeded", limit))
        else:
            answer.success.CopyFrom(_batch_success(written))
        return answer

    def _write(
        self,
        stream: str,
        expected: Expected,
        proposed: Sequence[Proposed],
        context: grpc.ServicerContext,
    ) -> Written:
        if self._faults.delay_ms:
            time.sleep(self._faults.delay_ms / 1000)
        if sum(len(event.data) + len(event.custom_metadata) for event in proposed) > (
            APPEND_BYTES_MAX
        ):
            raise TooLarge
        written = self._log.append(stream, expected, proposed)
        if self._faults.take("die_after_commit"):
            os._exit(1)
        if self._faults.take("drop_replies"):
            self._cut(context.peer())
        return written

    def _remove(
        self,
        options: streams_pb2.DeleteReq.Options | streams_pb2.TombstoneReq.Options,
        remove: Callable[[str, Expected], int],
        context: grpc.ServicerContext,
    ) -> int:
        stream = options.stream_identifier.stream_name.decode()
        expected = _expected_by_revision(options)
        try:
            return remove(stream, expected)
        except WrongVersion as wrong:
            _abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Append failed due to WrongExpectedVersion. Stream: {stream}, "
                f"Expected version: {expected.revision}, Actual version: {wrong.current}",
            )
        except StreamGone:
            _abort_deleted(context, stream)


def _abort_deleted(context: grpc.ServicerContext, stream: str) -> NoReturn:
    text = f"Event stream '{stream}' is deleted."
    _abort(context, grpc.StatusCode.FAILED_PRECONDITION, text)


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError("abort raises")


def _expected_by_revision(
    options: (
        streams_pb2.AppendReq.Options
        | streams_pb2.DeleteReq.Options
        | streams_pb2.TombstoneReq.Options
    ),
) -> Expected:
    match options.WhichOneof("expected_stream_revision"):
        case "any":
            return Expected("any")
        case "stream_exists":
            return Expected("exists")
        case "revision":
            return Expected("revision", options.revision)
        case _:
            return Expected("no-stream")


def _expected_by_position(options: streams_pb2.BatchAppendReq.Options) -> Expected:
    match options.WhichOneof("expected_stream_position"):
        case "any":
            return Expected("any")
        case "stream_exists":
            return Expected("exists")
        case "stream_position":
            return Expected("revision", options.stream_position)
        case _:
            return Expected("no-stream")


def _proposed(
    message: streams_pb2.AppendReq.ProposedMessage | streams_pb2.BatchAppendReq.ProposedMessage,
) -> Proposed:
    return Proposed(
        id=_id_of(message),
        type=message.metadata["type"],
        content_type=message.metadata["content-type"],
        data=message.data,
        custom_metadata=message.custom_metadata,
    )


def _id_of(message: _OnWire) -> str:
    if message.id.WhichOneof("value") == "string":
        return str(UUID(message.id.string))
    halves = message.id.structured
    high = halves.most_significant_bits % 2**64
    return str(UUID(int=high * 2**64 + halves.least_significant_bits % 2**64))


def _batch_success(written: Written) -> streams_pb2.BatchAppendResp.Success:
    """Say where the batch ended up; of a repeat only that it is there.

    What position the real server gives for a repeat is not documented, so no client code may
    rely on one: here it gets none.
    """
    success = streams_pb2.BatchAppendResp.Success(current_revision=written.revision)
    if written.repeated:
        success.no_position.CopyFrom(empty_pb2.Empty())
    else:
        success.position.commit_position = written.position
        success.position.prepare_position = written.position
    return success


def _status(message: str, detail: Message) -> status_pb2.Status:
    details = any_pb2.Any()
    details.Pack(detail)
    return status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message=message, details=details)
