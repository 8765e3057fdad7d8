"""What GPUs count as in the eyes of whoever checks a round: fractions of a card, worked out anew.

Reads the part that a model's name tells, and adds up in exact fractions of a GPU; the gate counts
in whole units of its own.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from listings.domain.gpus import is_of, model_matches
from listings.domain.mig import CARDS, card_of
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Use

Size = int | Fraction
"""A number of GPUs."""


def belongs(policies: Policies, gpu_class: str, model: str) -> bool:
    """Tell if a policy of a class speaks of a model: with parts counted, also of what is cut."""
    if gpu_class == "any":
        return True
    if policies.counts == "parts":
        return is_of(gpu_class, model)
    return model_matches(gpu_class, model)


def gpus_in(policies: Policies, gpu_class: str, use: Use) -> Size:
    """Return how many GPUs of a class a use counts as."""
    return sum(each.gpus * counted_in(policies, gpu_class, each.model) for each in use.gpus)


def gpus_of_all(policies: Policies, use: Use) -> Size:
    """Return how many GPUs a use counts as."""
    return sum(each.gpus * counted(policies, each.model) for each in use.gpus)


def counted_in(policies: Policies, gpu_class: str, model: str) -> Size:
    """Return what a GPU of a model counts as in a class."""
    if not belongs(policies, gpu_class, model):
        return 0
    return counted(policies, model) if _part(gpu_class) is None else 1


def counted(policies: Policies, model: str) -> Size:
    """Return what a GPU of a model counts as where no class is asked about."""
    if policies.counts == "whole":
        return 1
    part = _part(model)
    if part is None:
        return 1
    card = card_of(model)
    gib = _gib_of_card(card.name) if card is not None else None
    if part[0] in ("mps", "slice"):
        percent, had = int(part[1]), int(part[2][:-2])
        if gib is not None:
            # The name rounds what a share has of the memory by half a GiB at most.
            percent = max(percent, floor(100 * Fraction(2 * had - 1, 2 * gib)))
        return min(Fraction(max(1, percent), 100), Fraction(1))
    if card is None or gib is None:
        return 1
    *shared, slices, memory = part
    profile = f"{slices}.{memory}"
    if card.profile(profile) is None:
        return 1
    if shared:
        return Fraction(int(shared[0][0]), card.compute)
    had = int(memory.partition("gb")[0])
    of_memory = Fraction(round(Fraction(had * card.memory, gib)), card.memory)
    return max(Fraction(int(slices[0]), card.compute), of_memory)


def _gib_of_card(name: str) -> int:
    """Return the memory of a card that MIG divides, as its name, or its whole instance, says."""
    words = name.split("-")
    if len(words) > 1:
        return int(words[1].removesuffix("GB"))
    return int(CARDS[name].profiles[-1].name.partition(".")[2].removesuffix("gb"))


def _part(model: str) -> list[str] | None:
    """Return what the name of a model tells of a part, word by word; None: it is a card."""
    for word in model.lower().split("-"):
        said = word.split(".")
        if said[0] in ("mps", "slice") and len(said) == 3:
            return said
        compute = [each for each in said[:-1] if each[:1].isdigit() and each[1:] in ("g", "c")]
        if len(said) > 1 and len(compute) == len(said) - 1 and "gb" in said[-1]:
            return said
    return None
