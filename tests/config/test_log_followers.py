"""What a process took of a log reaches its readers once, in order, and with nothing left out."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from config.web.log_followers import PIECE_BYTES, Follower
from ledger.access.standing import Bearer
from marketplace.storage.logs import LogKey
from metering.agent.wire import LogPiece

KEY = LogKey(uuid4(), uuid4(), 1, "stdout")
WHO = Bearer(uuid4(), uuid4(), None)
LOG = bytes(index % 251 for index in range(600))


def piece(offset: int, data: bytes, *, ended: bool = False, stream: str = "stdout") -> LogPiece:
    return LogPiece(
        lease_id=KEY.lease_id, attempt=1, stream=stream, offset=offset,  # type: ignore[arg-type]
        data=LogPiece.written(data), ended=ended,
    )  # fmt: skip


def test_who_waits_at_the_end_is_handed_what_was_added() -> None:
    follower = Follower(KEY, WHO)
    follower.hear(piece(10, b"one"), 13)
    follower.hear(piece(13, b"two"), 16)

    assert follower.news.is_set() and follower.has_heard()
    assert follower.added_after(10) == b"onetwo"
    assert follower.added_after(10) == b""


def test_who_is_behind_looks_where_the_log_is() -> None:
    follower = Follower(KEY, WHO)
    follower.hear(piece(10, b"one"), 13)

    assert follower.added_after(9) == b""


def test_who_has_some_of_it_is_handed_the_rest() -> None:
    follower = Follower(KEY, WHO)
    follower.hear(piece(10, b"one"), 13)

    assert follower.added_after(11) == b"ne"


def test_the_end_of_a_log_is_looked_at() -> None:
    follower = Follower(KEY, WHO)
    follower.hear(piece(10, b"one"), 13)
    follower.hear(piece(13, b"", ended=True), 13)

    assert follower.news.is_set()
    assert follower.added_after(10) == b""


def test_another_stream_is_no_news() -> None:
    follower = Follower(KEY, WHO)
    follower.hear(piece(0, b"one", stream="stderr"), 3)

    assert not follower.news.is_set()


def test_a_slow_reader_has_a_bounded_amount_kept_for_it() -> None:
    follower, size = Follower(KEY, WHO), 0
    for _ in range(4):
        data = bytes(PIECE_BYTES // 3)
        follower.hear(piece(size, data), size + len(data))
        size += len(data)

    assert follower.added_after(0) == b""


def test_a_new_reader_is_noted_at_once_and_then_now_and_then() -> None:
    follower = Follower(KEY, WHO)

    assert follower.is_due()
    assert not follower.is_due()


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 60), st.booleans(), st.booleans())))
def test_a_reader_has_the_log_byte_by_byte(turns: list[tuple[int, int, bool, bool]]) -> None:
    """Whatever is sent, sent again or lost, and whenever the reader looks."""
    follower, size, read = Follower(KEY, WHO), 0, b""
    for start, length, again, looks in turns:
        offset = min(start, size) if again else size
        data = LOG[offset : offset + length]
        size = max(size, offset + len(data))
        follower.hear(piece(offset, data), size)
        if looks:
            follower.news.clear()
            read += follower.added_after(len(read)) or LOG[len(read) : size]
            assert read == LOG[: len(read)]
    read += follower.added_after(len(read)) or LOG[len(read) : size]
    assert read == LOG[: len(read)]
    if not follower.added_after(len(read)):
        assert (read + LOG[len(read) : size]) == LOG[:size]
