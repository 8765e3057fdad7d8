"""Writes the fake library's script and knows the truth that follows from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True)
class Proc:
    """A process on a GPU from start_ms until end_ms (0: still there), `sm` percent of the time."""

    gpu: int
    pid: int
    sm: int
    start_ms: int
    end_ms: int = 0
    mem_mib: int = 1024
    gi: int = -1
    mps: bool = False

    def line(self) -> str:
        return (
            f"proc gpu={self.gpu} pid={self.pid} mem={self.mem_mib * MIB} sm={self.sm} "
            f"start={self.start_ms * 1000} end={self.end_ms * 1000} gi={self.gi} ci=0 "
            f"mps={int(self.mps)}"
        )

    def resident_ms(self, start_ms: int, end_ms: int) -> int:
        """Return the truth: how long it was on the GPU within [start_ms, end_ms)."""
        until = min(end_ms, self.end_ms or end_ms)
        return max(0, until - max(start_ms, self.start_ms))

    def busy_ms(self, start_ms: int, end_ms: int) -> int:
        """Return the truth: how long its kernels ran within [start_ms, end_ms)."""
        return self.resident_ms(start_ms, end_ms) * self.sm // 100


@dataclass
class Script:
    """The state of the fake driver; `write` puts it in force."""

    path: Path
    clock_ms: int | None = None
    cards: list[str] = field(default_factory=list)
    procs: list[Proc] = field(default_factory=list)
    more: list[str] = field(default_factory=list)

    def card(self, uuid: str, options: str = "") -> None:
        self.cards.append(f"gpu i={len(self.cards)} uuid={uuid} {options}")
        self.write()

    def proc(self, proc: Proc) -> Proc:
        self.procs.append(proc)
        self.write()
        return proc

    def end(self, pid: int, end_ms: int) -> None:
        self.procs = [replace(p, end_ms=end_ms) if p.pid == pid else p for p in self.procs]
        self.write()

    def say(self, line: str) -> None:
        self.more.append(line)
        self.write()

    def unsay(self, line: str) -> None:
        self.more.remove(line)
        self.write()

    def at(self, clock_ms: int) -> None:
        self.clock_ms = clock_ms
        self.write()

    def write(self) -> None:
        clock = [] if self.clock_ms is None else [f"clock us={self.clock_ms * 1000}"]
        procs = [proc.line() for proc in self.procs]
        lines = ["driver version=580.82.07", *clock, *self.cards, *procs, *self.more]
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text("\n".join(lines) + "\n")
        os.replace(new, self.path)
