"""Stores whose process dies of each append, before or after it; and who begins anew each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Write
from ledger.eventstore.postgres import PostgresStore
from tests.ledger.all_kinds.lived import Step


class Killed(BaseException):
    """The process is gone: nobody catches it."""


class Mortal:
    """Kills its process before each append, or after it. when: empty while it lives on."""

    when = ""
    deaths = 0
    _is_second = False

    def _die(self, append: Callable[[], Any], *, is_write: bool) -> Any:
        if not self.when or not is_write:
            return append()
        if self.when == "before":
            self._is_second = not self._is_second
            if self._is_second:
                self.deaths += 1
                raise Killed
            return append()
        done = append()
        each = done if isinstance(done, list) else [done]
        if any(not one.deduplicated for one in each):
            self.deaths += 1
            raise Killed
        return done


class MortalMemory(Mortal, MemoryStore):
    """In memory, all or nothing."""

    _is_inside = False

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        if self._is_inside:
            return MemoryStore.append(self, stream, events, **said)
        done: Appended = self._die(
            lambda: MemoryStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        def whole() -> list[Appended]:
            self._is_inside = True
            try:
                return MemoryStore.append_whole(self, writes)
            finally:
                self._is_inside = False

        done: list[Appended] = self._die(whole, is_write=True)
        return done


class Piecemeal(MortalMemory):
    """In memory, one stream after the other."""

    appends_whole = False

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        return self.append_each(writes)


class MortalPostgres(Mortal, PostgresStore):
    """The real one."""

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        done: Appended = self._die(
            lambda: PostgresStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        done: list[Appended] = self._die(
            lambda: PostgresStore.append_whole(self, writes), is_write=True
        )
        return done


class MortalEsdb(Mortal, EsdbStore):
    """Over the protocol of EventStoreDB."""

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        done: Appended = self._die(
            lambda: EsdbStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done


def live(store: Any, steps: Sequence[Step]) -> None:
    """Take each step until a process lives to its end."""
    for name, ask in steps:
        is_new = True
        while True:
            try:
                ask(store)
            except Killed:
                is_new = False
                folds._memories.pop(store, None)
                continue
            except Refusal as refusal:
                assert not is_new, f"{name}: {refusal.code}"
            break
