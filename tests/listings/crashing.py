"""A store under which a process dies."""

from __future__ import annotations

from typing import Any

from ledger.eventstore.memory import MemoryStore


class Crashed(Exception):
    pass


class CrashingStore(MemoryStore):
    """The store of a process that dies after so many appends."""

    def __init__(self, real: MemoryStore, *, appends: int) -> None:
        self.__dict__.update(real.__dict__)
        self._real, self._appends_left = real, appends

    def append(self, *args: Any, **kwargs: Any) -> Any:
        if self._appends_left == 0:
            raise Crashed
        self._appends_left -= 1
        return self._real.append(*args, **kwargs)
