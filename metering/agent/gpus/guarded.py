"""A driver can hang. Then its call must not hold up the end of a lease on another GPU.

Calls run in one thread of their own; while one is stuck there, every further call fails at once,
and the first call after it came back is an ordinary one again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from ..wire import Gpu
from .port import BusyBy, CardMode, Energy, GpuFault, Gpus, Instance, Link, Reading, Wear, Xid

ANSWER_SECONDS_MAX = 5.0


class GuardedGpus:
    """`inner`, with every call answered or failed within `seconds`."""

    def __init__(self, inner: Gpus, *, seconds: float = ANSWER_SECONDS_MAX) -> None:
        self._inner = inner
        self._seconds = seconds
        self._calls: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()
        self._stuck: SimpleQueue[Any] | None = None
        threading.Thread(target=self._serve, name="gpus", daemon=True).start()

    def inventory(self, made: Collection[str] = ()) -> tuple[Gpu, ...]:
        found: tuple[Gpu, ...] = self._ask(lambda: self._inner.inventory(made), None)
        return found

    def read(self, uuid: str, *, since_us: int) -> Reading:
        reading: Reading = self._ask(lambda: self._inner.read(uuid, since_us=since_us), uuid)
        return reading

    def memory_used(self, uuid: str) -> int:
        return int(self._ask(lambda: self._inner.memory_used(uuid), uuid))

    def busy_by(self, uuid: str) -> BusyBy:
        said: BusyBy = self._ask(lambda: self._inner.busy_by(uuid), uuid)
        return said

    def energy(self, uuid: str) -> Energy | None:
        said: Energy | None = self._ask(lambda: self._inner.energy(uuid), uuid)
        return said

    def wear(self, uuid: str) -> Wear:
        worn: Wear = self._ask(lambda: self._inner.wear(uuid), uuid)
        return worn

    def link(self, uuid: str) -> Link | None:
        found: Link | None = self._ask(lambda: self._inner.link(uuid), uuid)
        return found

    def xids(self) -> Sequence[Xid]:
        try:
            found: Sequence[Xid] = self._ask(self._inner.xids, None)
        except GpuFault:
            return ()
        return found

    def modes(self) -> tuple[CardMode, ...]:
        found: tuple[CardMode, ...] = self._ask(self._inner.modes, None)
        return found

    def instances(self, card_uuid: str) -> tuple[Instance, ...]:
        found: tuple[Instance, ...] = self._ask(lambda: self._inner.instances(card_uuid), card_uuid)
        return found

    def make_instance(self, card_uuid: str, profile: str, first: int, last: int) -> Instance:
        made: Instance = self._ask(
            lambda: self._inner.make_instance(card_uuid, profile, first, last), card_uuid
        )
        return made

    def remove_instance(self, instance: Instance) -> None:
        self._ask(lambda: self._inner.remove_instance(instance), instance.card_uuid)

    def close(self) -> None:
        try:
            self._ask(self._inner.close, None)
        except GpuFault:
            return  # stuck: the thread is a daemon and ends with the process

    def _ask(self, call: Callable[[], Any], uuid: str | None) -> Any:
        if self._stuck is not None:
            try:
                self._stuck.get_nowait()
            except Empty:
                raise GpuFault("gpu-lost", "the driver still does not answer", uuid) from None
            self._stuck = None
        answer: SimpleQueue[Any] = SimpleQueue()
        self._calls.put((call, answer))
        try:
            result = answer.get(timeout=self._seconds)
        except Empty:
            self._stuck = answer
            raise GpuFault(
                "gpu-lost", f"the driver did not answer within {self._seconds:g} s", uuid
            ) from None
        if isinstance(result, BaseException):
            raise result
        return result

    def _serve(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                answer.put(call())
            except BaseException as error:  # handed to the caller, who raises it
                answer.put(error)
