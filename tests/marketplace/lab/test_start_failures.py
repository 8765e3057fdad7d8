"""A process that cannot be started leaves no place of the lab taken."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marketplace.lab import apart
from marketplace.lab.apart import AT_ONCE_MAX, Apart, LabBroke


def test_a_process_that_cannot_be_started_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    stretch = SimpleNamespace(behind=None)
    job = cast(Any, SimpleNamespace(stretch=stretch, steps=1))
    monkeypatch.setattr(subprocess, "Popen", fail)
    for _ in range(AT_ONCE_MAX + 1):
        with pytest.raises(LabBroke):
            Apart(job)

    for _ in range(AT_ONCE_MAX):
        assert apart._places.acquire(blocking=False)
    for _ in range(AT_ONCE_MAX):
        apart._places.release()
