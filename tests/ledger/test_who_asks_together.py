"""Requests are gathered while others may come, and not when all who ask are there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from ledger.rest import gathering
from ledger.rest.gathering import Gathering

PATIENCE_SECONDS = 60.0


@pytest.fixture
def asking(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> Iterator[Gathering[int, int]]:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 2 * PATIENCE_SECONDS)
    monkeypatch.setattr(gathering, "LATELY_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(gathering, "END_SECONDS", 0.01)

    def answer(asked: Sequence[int]) -> Sequence[int]:
        return [10 * each for each in asked]

    yield Gathering(answer, name="asked")
    for thread in [each for each in threading.enumerate() if each.name == "asked"]:
        thread.join(PATIENCE_SECONDS)


def test_who_asks_one_thing_after_the_other_waits_for_nobody(asking: Gathering[int, int]) -> None:
    async def ask() -> list[int]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [await asking.ask(number, by="a client") for number in range(5)]

    assert asyncio.run(ask()) == [0, 10, 20, 30, 40]
