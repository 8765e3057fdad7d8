"""What limits the server of MPS of a card has, and what its control daemon answers. Pure.

Source: NVIDIA, "Multi-Process Service": limits of a server are those of each of its clients, which
are processes; the environment of a client can only lower them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...shares import share_of

ROUNDED_DOWN_TO = 0.95
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)I?B?\b", re.IGNORECASE)
_MIB_OF = {"": 1 / (1 << 20), "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class CardLimits:
    """Of each process of work on a card's shares: of its multiprocessors, and of its memory."""

    compute_percent: int
    memory_mib: int


def limits_of(card: str, uuids: Iterable[str]) -> CardLimits | None:
    """Return the limits of the server of a card on which these GPUs are leased; None: it has none.

    One server serves all shares of a card, and has one pair of limits: those of the largest. Shares
    of equal size are held to it exactly.
    """
    shares = [share for uuid in uuids if (share := share_of(uuid)) is not None]
    here = [each for each in shares if each.kind == "mps" and each.card_uuid == card]
    if not here:
        return None
    return CardLimits(
        max(each.compute_percent for each in here), max(each.memory_mib for each in here)
    )


def holds(limits: CardLimits, *, percent: str, memory: str) -> bool:
    """Tell if a control daemon's answers to what its limits are say these.

    It may round down. What cannot be read holds nothing: `memory` is empty, or a word, where there
    is no limit.
    """
    compute, mib = _NUMBER.search(percent), _NUMBER.search(_after_device(memory))
    if compute is None or mib is None:
        return False
    held_mib = float(mib[1]) * _MIB_OF[mib[2].upper()]
    return _is(limits.compute_percent, float(compute[1])) and _is(limits.memory_mib, held_mib)


def _is(told: int, said: float) -> bool:
    return told * ROUNDED_DOWN_TO <= said <= told


def _after_device(answer: str) -> str:
    """Return an answer without the name of a device before it, which has figures of its own."""
    return re.split(r"[:=]\s*", answer.strip())[-1]
