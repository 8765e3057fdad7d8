"""Probes each card by a process of its own, which has that card alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from . import cuda_probe
from .port import Verdict

LIBRARY = "libcuda.so.1"
GONE_SECONDS_MAX = 1.0
SAID_CHARS_MAX = 500


class ProcessProber:
    """Runs `cuda_probe` for each card.

    seconds: after which a probe ends itself. mib: of memory that it tries.
    """

    def __init__(self, *, seconds: int, mib: int, library: str = LIBRARY) -> None:
        self._arguments = [library, str(seconds), str(mib)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._without = False

    def begin(self, uuid: str) -> None:
        if self._without:
            return
        program = [sys.executable, "-I", "-S", str(Path(cuda_probe.__file__))]
        self._running[uuid] = subprocess.Popen(
            [*program, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            env=os.environ
            | {
                "CUDA_VISIBLE_DEVICES": uuid,
                "CUDA_CACHE_DISABLE": "1",
                # The card itself is probed, not what a daemon of MPS makes of it.
                "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent",
            },
        )

    def look(self, uuid: str) -> Verdict | None:
        if self._without:
            return Verdict(None, cuda_probe.NO_LIBRARY)
        process = self._running[uuid]
        if process.poll() is None:
            return None
        del self._running[uuid]
        assert process.stdout is not None
        with process.stdout as told:
            line = told.read()
        try:
            found = json.loads(line)
            verdict = Verdict(found["fine"], str(found["said"])[:SAID_CHARS_MAX])
        except (ValueError, KeyError, TypeError):
            return Verdict(None, f"the probe was ended by {_cause(process.returncode)}")
        self._without = verdict.fine is None and verdict.said == cuda_probe.NO_LIBRARY
        return verdict

    def end(self, uuid: str) -> None:
        process = self._running.pop(uuid, None)
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GONE_SECONDS_MAX)
            return
        self._leaving.append(process)  # stuck in the driver: it is still ours

    def owns(self, pid: int) -> bool:
        self._leaving = [each for each in self._leaving if each.poll() is None]
        return any(each.pid == pid for each in (*self._running.values(), *self._leaving))


def _cause(code: int) -> str:
    if code >= 0:
        return f"an error of its own (code {code})"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
