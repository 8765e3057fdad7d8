"""How quotas and limits count a part of a card: as one GPU, or as the part of it that it is.

A part, a MIG instance or a share, is as much of its card as of what it takes most, compute or
memory: seven 1g.10gb fill an H100, and so do four 1g.20gb, which take all its memory. Its model's
name says both. Where that does not say it, because the market knows no such card or profile, a GPU
counts as one. Of a share the memory is known only of cards that MIG could divide; of others its
compute counts.

Counted in whole numbers: a GPU has as many units as let sevenths, eighths and hundredths of it be
whole, so nothing is rounded and what adds up to a card is a card.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from listings.domain import mig
from listings.domain.gpus import is_of, model_matches, model_of
from marketplace.domain.facts.values import Counts

UNITS = 1_400
"""Of a GPU where parts are counted."""
ANY_CLASS = "any"

_PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7]g\.[0-9]{1,3}gb(?:\+me)?)")
_SHARE = re.compile(r"(?:mps|slice)\.([0-9]{1,3})\.([0-9]{1,5})gb")


def unit_of(counts: Counts) -> int:
    """Return what one GPU counts as."""
    return UNITS if counts == "parts" else 1


@lru_cache(maxsize=4_096)
def in_class(gpu_class: str, model: str, counts: Counts) -> bool:
    """Tell if a model of GPU belongs to a class; with `parts` also what is cut from one of it."""
    if gpu_class == ANY_CLASS:
        return True
    return model_matches(gpu_class, model) if counts == "whole" else is_of(gpu_class, model)


@lru_cache(maxsize=16_384)
def size_in(gpu_class: str, model: str, counts: Counts) -> int:
    """Return what a GPU of a model counts as in a class, in units; 0: it is not of it.

    In a class that names the part itself, such as H100-1g.10gb, it counts as one.
    """
    if not in_class(gpu_class, model, counts):
        return 0
    return unit_of(counts) if is_part(gpu_class) else size_of(model, counts)


def size_of(model: str, counts: Counts) -> int:
    """Return what a GPU of a model counts as, in units."""
    return part_of(model) if counts == "parts" else 1


@lru_cache(maxsize=4_096)
def part_of(model: str) -> int:
    """Return how much of its card a GPU of a model is, in units; all of it where nothing says."""
    name = model_of(model)
    for word in name.split("-"):
        share, profile = _SHARE.fullmatch(word), _PROFILE.fullmatch(word)
        if share is not None:
            return _of_share(name, int(share[1]), int(share[2]))
        if profile is not None:
            return _of_instance(name, profile[1], profile[2])
    return UNITS


def _of_share(model: str, percent: int, gib: int) -> int:
    card = mig.card_of(model)
    if card is not None:
        # The name rounds the memory: by half a GiB less it is at most what the share has.
        most = max(int(each.name.partition(".")[2].partition("gb")[0]) for each in card.profiles)
        percent = max(percent, 100 * (2 * gib - 1) // (2 * most))
    return min(UNITS, max(1, percent) * UNITS // 100)


def _of_instance(model: str, compute: str | None, name: str) -> int:
    card = mig.card_of(model)
    profile = None if card is None else card.profile(name)
    if card is None or profile is None:
        return UNITS
    if compute is not None:
        # A compute instance shares the memory of its GPU instance with others.
        return int(compute) * UNITS // card.compute
    return max(profile.compute * UNITS // card.compute, profile.memory * UNITS // card.memory)


@lru_cache(maxsize=4_096)
def is_part(model: str) -> bool:
    return card_of(model) != model_of(model)


@lru_cache(maxsize=4_096)
def card_of(model: str) -> str:
    """Return the model of the card that a part is of; of any other GPU its own."""
    words = model_of(model).split("-")
    kept = [word for word in words if not (_SHARE.fullmatch(word) or _PROFILE.fullmatch(word))]
    return "-".join(kept)


def by_card(amounts: Mapping[str, float], counts: Counts) -> Mapping[str, float]:
    """Return amounts of GPUs, told by model, by what fair shares compare: with `parts`, by card.

    What is told of a part is then told of its card, as the part of it that it is.
    """
    if counts == "whole":
        return amounts
    found: dict[str, list[float]] = defaultdict(list)
    for model, amount in amounts.items():
        found[card_of(model)].append(amount * (part_of(model) / UNITS))
    return {card: math.fsum(each) for card, each in found.items()}


def in_gpus(units: int, unit: int) -> int | float:
    """Return a number of GPUs to be shown, with at most three decimals. unit: what one is."""
    return units // unit if units % unit == 0 else round(units / unit, 3)


def in_words(units: int, unit: int) -> str:
    """Return a number of GPUs in words: "0.143"."""
    return f"{in_gpus(units, unit):.10g}"
