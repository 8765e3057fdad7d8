"""One card as several GPUs: shares of it by MPS, time slices or MIG, each leased by itself.

To the market a share is a GPU with memory and compute of its own. Its id says all that a host's
agent must know: `GPU-…/mps-2of4/25pct-5758mib` is the second of four shares of that card by MPS,
with 25 % of its compute and 5,758 MiB. Shares of unequal size carry a mark of their sizes as well
(`mps-1of2x3f9a1c`), so that two ways to divide one card are never taken for one.

By MPS, compute and memory are limits that the driver keeps; by time slices neither is: N processes
take turns, so each has 1/N of the time when all are busy, and the memory is a promise.

By MIG each is an instance that the host's agent makes for the lease: `GPU-…/mig-3g.40gb@4-7` takes
the card's memory slices 4 to 7 (listings/domain/mig.py). To the market it is what an instance made
by hand is. Two of one card are in each other's way exactly if they share a slice, or both want the
media engines, so what is left of an older layout hinders no more than it covers.
Source: NVIDIA, "Multi-Process Service" (R580), sections on execution resource provisioning and
on memory protection and limits: Volta and later, 48 clients of a card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from ledger.domain.refusal import Invalid
from listings.domain import mig
from listings.domain.events import Division, Gpu, Part, ShareKind

SHARES_MAX = 48
INSTANCES_MAX = 8
"""MIG instances of a card; no card has places for more."""
SHARE_MEMORY_MIB_MIN = 1024
ID_CHARS_MAX, MODEL_CHARS_MAX = 96, 64
"""What leases have room for."""
MPS_CAPABILITY_MIN = (7, 0)
PPM = 1_000_000

_SHARE = re.compile(
    r"(?P<card>.+)/(?P<kind>mps|timeslice)-(?P<number>[1-9][0-9]?)of(?P<division>[0-9a-fx]+)"
    r"/(?P<percent>[0-9]{1,3})pct-(?P<memory>[0-9]+)mib"
)
_INSTANCE = re.compile(
    r"(?P<card>.+)/mig-(?P<profile>[1-7]g\.[0-9]{1,3}gb(?:\+me)?)@(?P<first>[0-7])-(?P<last>[0-7])"
)
_SLICES = re.compile(r"(?:([1-7])c\.)?([1-7])g\.")


class SharesUnfit(Invalid):
    """The GPU cannot be divided so: `reason` says why.

    Give `count` for shares of equal size, or `parts` with the memory, and by MPS the percentage of
    compute, of each; by MIG give `profiles`, or one of them and `count`.
    """


class MigLayoutImpossible(Invalid):
    """These MIG profiles cannot be on one card together.

    `profiles` are the fewest of them that already cannot: they need more compute or memory slices
    than the card has, or there is no place for the last of them; `slices` are those of the card.
    """


class MigModeOn(Invalid):
    """The card is in MIG mode: only its MIG instances can be leased.

    Divide it with `shares` of kind `mig`, or switch the mode off with nvidia-smi -mig 0.
    """


class ShareId(NamedTuple):
    """What a share's id says.

    division: by MPS and time slices, the same for all that exist beside each other. profile, first,
    last: by MIG, the instance and its memory slices; memory_mib is then what the profile is called.
    """

    card_uuid: str
    kind: ShareKind
    number: int
    division: str
    compute_percent: int
    memory_mib: int
    profile: str = ""
    first: int = 0
    last: int = 0


def read_share(uuid: str) -> ShareId | None:
    """Return what the id of a share says; None: the id is not that of a share."""
    return _read(uuid) if "/" in uuid else None  # most ids are those of cards


@lru_cache(maxsize=65_536)
def _read(uuid: str) -> ShareId | None:
    form = _SHARE.fullmatch(uuid)
    if form is None:
        return _instance(uuid)
    return ShareId(
        form["card"],
        "mps" if form["kind"] == "mps" else "timeslice",
        int(form["number"]),
        f"{form['kind']}-{form['division']}",
        int(form["percent"]),
        int(form["memory"]),
    )


def _instance(uuid: str) -> ShareId | None:
    form = _INSTANCE.fullmatch(uuid)
    if form is None or form["last"] < form["first"]:
        return None
    profile = form["profile"]
    compute, slices = mig.compute_of(profile)
    memory_mib = int(profile.partition(".")[2].partition("gb")[0]) * mig.MIB_PER_GIB
    first, last = int(form["first"]), int(form["last"])
    percent = compute * 100 // slices
    return ShareId(form["card"], "mig", first, "mig", percent, memory_mib, profile, first, last)


def card_of(uuid: str) -> str:
    """Return the card that a share is of; of any other GPU its own id."""
    share = read_share(uuid)
    return uuid if share is None else share.card_uuid


def cards_of(uuids: Iterable[str]) -> set[str]:
    """Return the cards of some GPUs: four shares of one are one."""
    return set(map(card_of, uuids))


def weighed(uuid: str, millis: int) -> int:
    """Return how much of its card's time the time of a GPU is: of a share, its part of compute."""
    share = read_share(uuid)
    if share is None:
        return millis
    part, whole = part_of(share)
    return millis * part // whole


def part_of(share: ShareId) -> tuple[int, int]:
    """Return which part of its card's compute a share is: slices of it by MIG, else percent."""
    return mig.compute_of(share.profile) if share.profile else (share.compute_percent, 100)


def are_rivals(one: str, other: str) -> bool:
    """Tell if two GPUs cannot be there at one time: a card and its share, or shares of two ways.

    MIG instances are rivals where they take the same slices. A GPU is no rival of itself.
    """
    first, second = read_share(one), read_share(other)
    if first is None or second is None:
        return (first is not None and first.card_uuid == other) or (
            second is not None and second.card_uuid == one
        )
    if first.card_uuid != second.card_uuid or one == other:
        return False
    if first.profile and second.profile:
        media = first.profile.endswith("+me") and second.profile.endswith("+me")
        return media or (first.first <= second.last and second.first <= first.last)
    return first.division != second.division


def pieces(division: Division) -> int:
    """Return how many shares a division makes of each card."""
    return len(division.parts) or max(len(division.profiles), division.count)


def check_division(division: Division | None) -> Division | None:
    """Return a division in its normal form: by MIG every profile by name, the largest first.

    Raises: SharesUnfit.
    """
    if division is None or division.kind != "mig":
        if division is not None and division.profiles:
            raise SharesUnfit(reason="`profiles` are of kind mig only")
        return division
    profiles = [name.strip().lower() for name in division.profiles]
    if division.parts or not profiles:
        raise SharesUnfit(reason="by MIG give `profiles`, such as 3g.40gb")
    if len(profiles) == 1 and 1 <= division.count <= INSTANCES_MAX:
        profiles *= division.count
    elif division.count not in (0, len(profiles)) or len(profiles) > INSTANCES_MAX:
        reason = f"give {INSTANCES_MAX} `profiles` at most, or one and `count`"
        raise SharesUnfit(reason=reason)
    return Division("mig", profiles=tuple(sorted(profiles, reverse=True)))


def divide(gpu: Gpu, division: Division) -> tuple[Gpu, ...]:
    """Return a card's shares as GPUs of their own.

    Raises: SharesUnfit.
    """
    if division.kind == "mig":
        return _instances(gpu, division.profiles)
    parts = _parts(gpu, division)
    name = str(len(parts)) + (f"x{_mark(division.parts)}" if division.parts else "")
    word = "mps" if division.kind == "mps" else "slice"
    shares = []
    for number, (percent, memory_mib) in enumerate(parts, 1):
        size = f"{percent}.{max(1, round(memory_mib / 1024))}gb"
        shares.append(
            replace(
                gpu,
                uuid=f"{gpu.uuid}/{division.kind}-{number}of{name}/{percent}pct-{memory_mib}mib",
                model=f"{gpu.model}-{word}.{size}",
                memory_mib=memory_mib,
                # NVLink joins whole cards; whoever has a part of one must not count on it.
                nvlink_group=None,
                card_uuid=gpu.uuid,
                compute_percent=percent,
            )
        )
    return _with_room(gpu, shares)


def _instances(gpu: Gpu, profiles: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the MIG instances into which a card is divided, by place.

    Raises: SharesUnfit, MigLayoutImpossible.
    """
    card = mig.card_of(gpu.model)
    if gpu.mig_profiles:
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason="an instance of MIG cannot be divided again")
    if card is None:
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=f"MIG cannot divide the model {gpu.model}")
    if not gpu.mig_enabled:
        switch = f"nvidia-smi -i {gpu.uuid} -mig 1 on its host, as root"
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=f"its MIG mode is off: {switch}")
    unknown = sorted({name for name in profiles if card.profile(name) is None})
    if unknown:
        known = ", ".join(each.name for each in card.profiles)
        reason = f"its profiles are {known}; not {', '.join(unknown)}"
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=reason)
    placed = mig.layout(card, profiles)
    if placed is None:
        raise MigLayoutImpossible(
            gpu_uuid=gpu.uuid,
            profiles=mig.too_many(card, profiles),
            slices={"compute": card.compute, "memory": card.memory},
        )
    found = []
    for each in placed:
        profile = card.profile(each.profile)
        assert profile is not None
        last = each.start + profile.memory - 1
        found.append(
            replace(
                gpu,
                uuid=f"{gpu.uuid}/mig-{profile.name}@{each.start}-{last}",
                model=f"{gpu.model}-{profile.name}",
                memory_mib=profile.memory_mib,
                nvlink_group=None,
                mig_profiles=(profile.name,),
                card_uuid=gpu.uuid,
            )
        )
    return _with_room(gpu, found)


def _with_room(gpu: Gpu, shares: Sequence[Gpu]) -> tuple[Gpu, ...]:
    if any(len(s.uuid) > ID_CHARS_MAX or len(s.model) > MODEL_CHARS_MAX for s in shares):
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason="its UUID or model's name is too long")
    return tuple(shares)


def compute_ppm(gpu: Gpu) -> int:
    """Return what part of its card's compute a GPU has: all, a MIG instance's slices, a share."""
    if gpu.compute_percent is not None:
        return gpu.compute_percent * PPM // 100
    form = _SLICES.match(gpu.mig_profiles[0]) if len(gpu.mig_profiles) == 1 else None
    if form is None:
        return PPM
    card = mig.card_of(gpu.model)
    return int(form[1] or form[2]) * PPM // (7 if card is None else card.compute)


def _parts(gpu: Gpu, division: Division) -> list[tuple[int, int]]:
    """Return the percentage and the memory of each share. Raises: SharesUnfit."""
    if gpu.mig_profiles:
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason="an instance of MIG cannot be divided again")
    if gpu.mig_enabled:
        raise MigModeOn(gpu_uuid=gpu.uuid)
    least = ".".join(map(str, MPS_CAPABILITY_MIN))
    if division.kind == "mps" and _capability(gpu) < MPS_CAPABILITY_MIN:
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=f"MPS limits need compute capability {least}")
    parts = division.parts
    count = len(parts) or division.count
    if not (1 if parts else 2) <= count <= SHARES_MAX:
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=f"a GPU has 2 to {SHARES_MAX} shares")
    if parts and division.count not in (0, count):
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason="`count` and `parts` say different numbers")
    sizes = [each.memory_mib for each in parts] or [gpu.memory_mib // count] * count
    if min(sizes) < SHARE_MEMORY_MIB_MIN or sum(sizes) > gpu.memory_mib:
        reason = f"each share has 1 GiB at least, all together {gpu.memory_mib} MiB at most"
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=reason)
    return list(zip(_percents(gpu, division.kind, parts, count), sizes, strict=True))


def _percents(gpu: Gpu, kind: ShareKind, parts: Sequence[Part], count: int) -> list[int]:
    given = [each.compute_percent for each in parts]
    if kind == "timeslice" or not parts:
        if any(each is not None for each in given):
            reason = "time slices are equal: leave compute_percent out"
            raise SharesUnfit(gpu_uuid=gpu.uuid, reason=reason)
        return [100 // count] * count
    percents = [each for each in given if each is not None]
    if len(percents) < count or not all(1 <= each <= 100 for each in percents):
        reason = "by MPS each share has a compute_percent from 1 to 100"
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=reason)
    if sum(percents) > 100:
        reason = "the shares have more than 100 % of the compute"
        raise SharesUnfit(gpu_uuid=gpu.uuid, reason=reason)
    return percents


def _mark(parts: Sequence[Part]) -> str:
    said = ",".join(f"{each.compute_percent or 0}/{each.memory_mib}" for each in parts)
    return sha256(said.encode()).hexdigest()[:6]


def _capability(gpu: Gpu) -> tuple[int, ...]:
    return tuple(int(part) for part in gpu.compute_capability.split("."))
