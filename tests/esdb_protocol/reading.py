"""The reading half of the Streams service: streams, the whole log, and subscriptions to both."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from uuid import uuid4

import grpc
from esdbclient.protos.Grpc import shared_pb2, streams_pb2

from tests.esdb_protocol.faults import Faults
from tests.esdb_protocol.journal import Stored
from tests.esdb_protocol.log import Log

ReadOptions = streams_pb2.ReadReq.Options
Chosen = Callable[[Stored], bool]

SEARCH_WINDOW_EVENTS = 32  # between checkpoints, times the client's multiplier
CHUNK_EVENTS = 500


class Reader:
    """Answers Read in its eight shapes."""

    def __init__(self, log: Log, faults: Faults) -> None:
        self._log = log
        self._faults = faults

    def read(
        self, request: streams_pb2.ReadReq, context: grpc.ServicerContext
    ) -> Iterator[streams_pb2.ReadResp]:
        """Answer Read: which shape depends on the options."""
        options = request.options
        if self._faults.take("refuse_reads"):
            context.abort(grpc.StatusCode.UNAVAILABLE, "Server Is Not Ready")
        whole_log = options.WhichOneof("stream_option") == "all"
        stream = options.stream.stream_identifier.stream_name.decode()
        if not whole_log and stream in self._log.tombstones:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"Event stream '{stream}' is deleted."
            )
        if options.WhichOneof("count_option") == "subscription":
            yield _confirmation()
            context.add_callback(self._wake_up)
            if whole_log:
                yield from self._follow_log(options, _chosen(options, context), context)
            else:
                yield from self._follow_stream(options.stream, stream, context)
        elif whole_log:
            yield from self._page_of_log(options, _chosen(options, context))
        else:
            yield from self._page_of_stream(options, stream)

    def _page_of_stream(self, options: ReadOptions, stream: str) -> Iterator[streams_pb2.ReadResp]:
        events = self._log.visible(stream)
        if not events:
            missing = streams_pb2.ReadResp.StreamNotFound(
                stream_identifier=shared_pb2.StreamIdentifier(stream_name=stream.encode())
            )
            yield streams_pb2.ReadResp(stream_not_found=missing)
            return
        start = options.stream.WhichOneof("revision_option")
        revision = options.stream.revision
        if options.read_direction == ReadOptions.Backwards:
            # Both directions include the event at the given revision.
            cut = len(events) if start == "end" else _revisions_up_to(events, revision)
            events = events[:cut][::-1]
        elif start == "end":
            events = []
        elif start == "revision":
            events = events[_revisions_up_to(events, revision - 1) :]
        for event in events[: options.count]:
            yield _event(event)

    def _page_of_log(self, options: ReadOptions, chosen: Chosen) -> Iterator[streams_pb2.ReadResp]:
        start = options.all.WhichOneof("all_option")
        with self._log.changed:
            end = len(self._log.events)
            at = bisect_left(self._log.positions, options.all.position.commit_position)
        # Forwards includes the event at the given position, backwards does not.
        if options.read_direction == ReadOptions.Backwards:
            indexes = range((end if start == "end" else at) - 1, -1, -1)
        else:
            indexes = range({"start": 0, "end": end}.get(start or "", at), end)
        left = options.count
        for index in indexes:
            if left == 0:
                return
            event = self._log.events[index]
            if chosen(event):
                left -= 1
                yield _event(event)

    def _follow_stream(
        self,
        options: streams_pb2.ReadReq.Options.StreamOptions,
        stream: str,
        context: grpc.ServicerContext,
    ) -> Iterator[streams_pb2.ReadResp]:
        match options.WhichOneof("revision_option"):
            case "start":
                last = -1
            case "end":
                last = self._log.last_revision(stream)
            case _:
                last = options.revision
        caught_up = False
        while context.is_active():
            for event in self._log.visible(stream):
                if event.revision > last:
                    last = event.revision
                    yield _event(event)
                    self._end_if_ordered(context)
            if not caught_up:
                caught_up = True
                yield _caught_up()
            with self._log.changed:
                while context.is_active() and self._log.last_revision(stream) <= last:
                    self._log.changed.wait()

    def _follow_log(
        self, options: ReadOptions, chosen: Chosen, context: grpc.ServicerContext
    ) -> Iterator[streams_pb2.ReadResp]:
        with self._log.changed:
            match options.all.WhichOneof("all_option"):
                case "start":
                    index = 0
                case "end":
                    index = len(self._log.events)
                case _:
                    after = options.all.position.commit_position
                    index = bisect_right(self._log.positions, after)
        window = _checkpoint_window(options)
        looked_at = 0
        caught_up = False
        while context.is_active():
            chunk = self._log.events[index : index + CHUNK_EVENTS]
            for event in chunk:
                index += 1
                looked_at += 1
                if chosen(event):
                    yield _event(event)
                    self._end_if_ordered(context)
                if window and looked_at >= window:
                    looked_at = 0
                    yield _checkpoint(event)
            if not chunk:
                if not caught_up:
                    caught_up = True
                    yield _caught_up()
                with self._log.changed:
                    while context.is_active() and index >= len(self._log.events):
                        self._log.changed.wait()

    def _end_if_ordered(self, context: grpc.ServicerContext) -> None:
        if self._faults.take("end_subscriptions"):
            context.abort(grpc.StatusCode.ABORTED, "Consumer too slow")

    def _wake_up(self) -> None:
        """Let a follower whose client went away see that."""
        with self._log.changed:
            self._log.changed.notify_all()


def _chosen(options: ReadOptions, context: grpc.ServicerContext) -> Chosen:
    """Return the filter that the client asked for.

    Python's `re` stands in for .NET's: the same for the plain patterns of our adapter.
    """
    if options.WhichOneof("filter_option") != "filter":
        return lambda event: True
    by_stream = options.filter.WhichOneof("filter") == "stream_identifier"
    expression = options.filter.stream_identifier if by_stream else options.filter.event_type
    if expression.prefix:
        prefixes = tuple(expression.prefix)
        return lambda event: (event.stream if by_stream else event.type).startswith(prefixes)
    try:
        pattern = re.compile(expression.regex)
    except re.error as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"Invalid pattern: {error}")
    return lambda event: bool(pattern.search(event.stream if by_stream else event.type))


def _checkpoint_window(options: ReadOptions) -> int:
    if options.WhichOneof("filter_option") != "filter":
        return 0
    window = options.filter.max or SEARCH_WINDOW_EVENTS
    return window * (options.filter.checkpointIntervalMultiplier or 1)


def _revisions_up_to(events: list[Stored], revision: int) -> int:
    return bisect_right(events, revision, key=lambda event: event.revision)


def _event(event: Stored) -> streams_pb2.ReadResp:
    recorded = streams_pb2.ReadResp.ReadEvent.RecordedEvent(
        id=shared_pb2.UUID(string=event.id),
        stream_identifier=shared_pb2.StreamIdentifier(stream_name=event.stream.encode()),
        stream_revision=event.revision,
        prepare_position=event.position,
        commit_position=event.position,
        metadata={
            "type": event.type,
            "content-type": event.content_type,
            "created": str(event.created_ticks),
        },
        custom_metadata=event.custom_metadata,
        data=event.data,
    )
    return streams_pb2.ReadResp(
        event=streams_pb2.ReadResp.ReadEvent(event=recorded, commit_position=event.position)
    )


def _confirmation() -> streams_pb2.ReadResp:
    confirmation = streams_pb2.ReadResp.SubscriptionConfirmation(subscription_id=str(uuid4()))
    return streams_pb2.ReadResp(confirmation=confirmation)


def _checkpoint(event: Stored) -> streams_pb2.ReadResp:
    checkpoint = streams_pb2.ReadResp.Checkpoint(
        commit_position=event.position, prepare_position=event.position
    )
    return streams_pb2.ReadResp(checkpoint=checkpoint)


def _caught_up() -> streams_pb2.ReadResp:
    return streams_pb2.ReadResp(caught_up=streams_pb2.ReadResp.CaughtUp())
