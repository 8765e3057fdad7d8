"""How real cards can be divided by MIG: which instances fit on one card together, and where.

A card has memory slices in a row (eight; four on the A30) and compute slices (seven; four). A
profile covers a run of memory slices that begins at one of a few places; two instances on one
card may not share a slice. A profile with media engines (`+me`) exists once a card.

Sources: NVIDIA Multi-Instance GPU User Guide (v580), "Supported MIG Profiles" (profiles, fractions,
instances) and "Getting Started with MIG", `nvidia-smi mig -lgipp` (starts and sizes: {0..6}:1,
{0,2,4,6}:2 and {0,2,4}:2, {0,4}:4, {0}:4, {0}:8; on the A30 {0..3}:1, {0,2}:2, {0}:4). Memory is
what `nvidia-smi mig -lgip` calls an instance's own, rounded down to a whole GiB; where no such
listing was found, the slice's fraction of the card less what others lose (H100 96 GB, B200).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to cut an instance out of a card.

    compute, memory: slices it takes. starts: the memory slices it may begin at. memory_mib: what
    of it is usable at least.
    """

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]
    memory_mib: int

    @property
    def has_media(self) -> bool:
        """Tell if it takes the media engines, of which a card lends one set."""
        return self.name.endswith("+me")


@dataclass(frozen=True, slots=True)
class Card:
    """A model of GPU that MIG can divide. compute, memory: its slices."""

    name: str
    compute: int
    memory: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        """Return the profile of that name, or of the name that the agent gave it.

        The agent rounds an instance's own memory, so it may say 1g.16gb for H200's 1g.18gb.
        """
        exact = next((each for each in self.profiles if each.name == name), None)
        form = _NAME.fullmatch(name)
        if exact is not None or form is None:
            return exact
        compute, gib, suffix = int(form[1]), int(form[2]), form[3]
        return next(
            (
                each
                for each in self.profiles
                if each.compute == compute
                and each.has_media == (suffix == "+me")
                and each.memory_mib // MIB_PER_GIB <= gib <= _nominal(each)
            ),
            None,
        )


_NAME = re.compile(r"([1-7])g\.([0-9]{1,3})gb(\+me)?")


def _nominal(profile: Profile) -> int:
    form = _NAME.fullmatch(profile.name)
    assert form is not None
    return int(form[2])


def _card(name: str, nominal: Sequence[int], usable: Sequence[int]) -> Card:
    """Return a card of seven compute and eight memory slices.

    nominal, usable: GiB of an eighth, a quarter, a half and the whole, as named and as usable.
    """
    eighth, quarter, half, whole = nominal
    mib = [gib * MIB_PER_GIB for gib in usable]
    singles, pairs, triples, halves = tuple(range(7)), (0, 2, 4, 6), (0, 2, 4), (0, 4)
    return Card(
        name,
        7,
        8,
        (
            Profile(f"1g.{eighth}gb", 1, 1, singles, mib[0]),
            Profile(f"1g.{eighth}gb+me", 1, 1, singles, mib[0]),
            Profile(f"1g.{quarter}gb", 1, 2, pairs, mib[1]),
            Profile(f"2g.{quarter}gb", 2, 2, triples, mib[1]),
            Profile(f"3g.{half}gb", 3, 4, halves, mib[2]),
            Profile(f"4g.{half}gb", 4, 4, (0,), mib[2]),
            Profile(f"7g.{whole}gb", 7, 8, (0,), mib[3]),
        ),
    )


CARDS = {
    card.name: card
    for card in (
        Card(
            "A30",
            4,
            4,
            (
                Profile("1g.6gb", 1, 1, (0, 1, 2, 3), 5 * MIB_PER_GIB),
                Profile("1g.6gb+me", 1, 1, (0, 1, 2, 3), 5 * MIB_PER_GIB),
                Profile("2g.12gb", 2, 2, (0, 2), 11 * MIB_PER_GIB),
                Profile("2g.12gb+me", 2, 2, (0, 2), 11 * MIB_PER_GIB),
                Profile("4g.24gb", 4, 4, (0,), 23 * MIB_PER_GIB),
            ),
        ),
        _card("A100-40GB", (5, 10, 20, 40), (4, 9, 19, 39)),
        _card("A100-80GB", (10, 20, 40, 80), (9, 19, 39, 78)),
        _card("H100-80GB", (10, 20, 40, 80), (9, 19, 39, 79)),
        _card("H100-94GB", (12, 24, 47, 94), (10, 22, 45, 93)),
        _card("H100-96GB", (12, 24, 48, 96), (10, 22, 46, 94)),
        _card("H200", (18, 35, 71, 141), (16, 32, 69, 140)),
        _card("B200", (23, 45, 90, 180), (21, 43, 87, 176)),
    )
}


def card_of(model: str) -> Card | None:
    """Return what can be divided of a GPU by the market's name of its model; None: not by MIG.

    "A100-SXM4-80GB" is an A100 with 80 GB, "H100-PCIE" and "H100" have 80, "H100-NVL" has 94,
    "GH200-480GB" holds an H100 with 96.
    """
    words = model.upper().split("-")
    if words[0] in ("A30", "H200", "B200"):
        return CARDS[words[0]]
    if words[0] == "GH200":
        return CARDS["H100-96GB"]
    if words[0] == "A100":
        return CARDS["A100-80GB" if "80GB" in words else "A100-40GB"]
    if words[0] == "H100":
        memory = "96GB" if "96GB" in words else "94GB" if {"NVL", "94GB"} & {*words} else "80GB"
        return CARDS[f"H100-{memory}"]
    return None


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """One instance on a card: it takes the memory slices from `start` on."""

    start: int
    profile: str


def compute_of(profile: str) -> tuple[int, int]:
    """Return how many of how many compute slices of its card a profile takes, by its name."""
    slices = next((c.compute for c in CARDS.values() if c.profile(profile) is not None), 7)
    return int(profile.partition("g")[0]), slices


def placements(card: Card, profile: str) -> tuple[int, ...]:
    """Return the memory slices at which an instance may begin; empty: the card has no such one."""
    found = card.profile(profile)
    return () if found is None else found.starts


def layout(card: Card, profiles: Sequence[str]) -> tuple[Placed, ...] | None:
    """Return a place for each of `profiles` on one card, by start; None: they cannot coexist.

    The largest are placed first, each as far left as it can be; all ways are tried.
    """
    wanted = []
    for name in profiles:
        profile = card.profile(name)
        if profile is None:
            return None
        wanted.append(profile)
    if (
        sum(each.memory for each in wanted) > card.memory
        or sum(each.compute for each in wanted) > card.compute
        or sum(each.has_media for each in wanted) > 1
    ):
        return None
    wanted.sort(key=lambda each: (-each.memory, len(each.starts), each.name))
    found = next(_ways(wanted, 0), None)
    return None if found is None else tuple(sorted(found))


def _ways(wanted: Sequence[Profile], used: int) -> Iterator[list[Placed]]:
    """Yield every way to place `wanted` beside the slices in the bit set `used`."""
    if not wanted:
        yield []
        return
    profile, *rest = wanted
    for start in profile.starts:
        span = ((1 << profile.memory) - 1) << start
        if not used & span:
            for others in _ways(rest, used | span):
                yield [Placed(start, profile.name), *others]


def coexist(card: Card, profiles: Sequence[str]) -> bool:
    """Tell if instances of these profiles can be on one card at one time."""
    return layout(card, profiles) is not None


def still_fits(card: Card, placed: Sequence[Placed]) -> dict[str, tuple[int, ...]]:
    """Return where one more instance of each profile could begin beside those that are there.

    Instances never move: what was created in an unlucky place stays in the way. Profiles for
    which there is no place are left out.
    """
    there = []
    for each in placed:
        profile = card.profile(each.profile)
        assert profile is not None, f"{card.name} has no {each.profile}"
        there.append((profile, each.start))
    used = sum(((1 << profile.memory) - 1) << start for profile, start in there)
    compute_left = card.compute - sum(profile.compute for profile, _ in there)
    has_media = any(profile.has_media for profile, _ in there)
    found = {}
    for profile in card.profiles:
        if profile.compute > compute_left or (profile.has_media and has_media):
            continue
        span = (1 << profile.memory) - 1
        starts = tuple(start for start in profile.starts if not used & (span << start))
        if starts:
            found[profile.name] = starts
    return found


def too_many(card: Card, profiles: Sequence[str]) -> tuple[str, ...]:
    """Return the fewest of `profiles`, in their order, that already cannot coexist; or nothing."""
    if coexist(card, profiles):
        return ()
    kept = list(profiles)
    for name in sorted(profiles, key=Counter(profiles).__getitem__):
        fewer = kept.copy()
        fewer.remove(name)
        if not coexist(card, fewer):
            kept = fewer
    return tuple(kept)
