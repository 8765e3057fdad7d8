"""What a GPU is called and what a report of one must look like."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from ledger.domain.refusal import Invalid
from listings.domain.divisions import read_share
from listings.domain.events import Division, Gpu, Isolation
from listings.domain.mig import card_of, coexist, too_many

GPUS_PER_HOST_MAX = 256
MEMORY_MIB_MAX = 16 * 1024 * 1024
TEXT_MAX = 200
PROFILES_MAX = 64

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]{0,199}")
_PROFILE = re.compile(r"([1-7]c\.)?[1-7]g\.[0-9]{1,3}gb(\+[a-z][a-z.]*)*")
_SHARE = re.compile(r"(mps|slice)\.[0-9]{1,3}\.[0-9]{1,5}gb")
_CARD = re.compile(r"MIG-(GPU-[0-9A-Za-z-]+)/[0-9]+/[0-9]+")
"""Older drivers (before R470) name a MIG instance by its card."""
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")
_NOISE = re.compile(r"nvidia|corporation|tesla|geforce|quadro|graphics|gpu|mig|hbm[0-9]?e?|gddr6x?")
_MEMORY = re.compile(r"([0-9]+)g(b|ib)?")


class GpuUnreadable(Invalid):
    """A GPU of the inventory is not described as it must be: `field` says what is wrong."""


class GpuNamedTwice(Invalid):
    """The same GPU is named twice."""


class TooManyGpus(Invalid):
    """A host has at most 256 GPUs."""


class MigImpossible(Invalid):
    """These MIG instances cannot be on one card together.

    Compare with nvidia-smi mig -lgi on the host; `gpu_uuid` is the card.
    """


class IsolationUnfit(Invalid):
    """These GPUs cannot be leased at that isolation level.

    `mig` needs MIG instances, there already or made of `shares`; `mps` and `timeslice` need GPUs
    that the offer divides into such `shares`; any other level needs GPUs that are not divided.
    """


def model_of(name: str) -> str:
    """Return the market's name of a GPU model from what the driver calls it.

    "NVIDIA H100 80GB HBM3" -> "H100-80GB", "Tesla T4" -> "T4", "NVIDIA GeForce RTX 4090" ->
    "RTX-4090"; a MIG instance keeps its profile: "NVIDIA H100 80GB HBM3 MIG 3g.40gb" ->
    "H100-80GB-3g.40gb", and a share its size: "L4-mps.25.6gb". A name that is normal already
    stays as it is.
    """
    words = [word for word in re.split(r"[\s_-]+", name.strip()) if word]
    kept = [_word(word) for word in words if not _NOISE.fullmatch(word.lower())]
    return "-".join(kept) or name.strip()


def _word(word: str) -> str:
    lower = word.lower()
    if _PROFILE.fullmatch(lower) or _SHARE.fullmatch(lower):
        return lower
    memory = _MEMORY.fullmatch(lower)
    return f"{memory[1]}GB" if memory else word.upper()


@lru_cache(maxsize=4_096)
def model_matches(asked: str, model: str) -> bool:
    """Test if a GPU of `model` is what `asked` names: the same, or a narrower kind of it.

    "H100" is met by "H100-80GB" and by "H100-PCIE-80GB"; never by "GH100" nor by a MIG
    instance, which has to be asked for by its profile. A share is a kind of its card's model.
    """
    wanted, have = model_of(asked).split("-"), model_of(model).split("-")
    profiles = [{word for word in words if _PROFILE.fullmatch(word)} for words in (wanted, have)]
    return (
        profiles[0] == profiles[1]
        and all(word in have for word in wanted)
        and (wanted[0] == have[0])
    )


@lru_cache(maxsize=4_096)
def is_of(named: str, model: str) -> bool:
    """Test if a GPU of `model` is what `named` names or cut from it: a MIG instance, a share.

    "A100" names "A100-80GB" and "A100-80GB-3g.40gb"; "A100-3g.40gb" of these the instance alone.
    """
    wanted, have = model_of(named).split("-"), model_of(model).split("-")
    return wanted[0] == have[0] and all(word in have for word in wanted)


@lru_cache(maxsize=4_096)
def names_share(model: str) -> bool:
    """Tell if a model is that of a share of a GPU, told by its size: "L4-mps.25.6gb"."""
    return any(_SHARE.fullmatch(word) for word in model_of(model).split("-"))


@lru_cache(maxsize=4_096)
def names_part(model: str) -> bool:
    """Tell if a model, or a class, is that of a part of a card: a MIG instance or a share."""
    words = model_of(model).split("-")
    return any(_SHARE.fullmatch(word) or _PROFILE.fullmatch(word) for word in words)


def own_model(gpu: Gpu) -> str:
    """Return the market's name of a GPU, of a MIG instance with its profile.

    The driver's name of an instance is that of its card. A profile whose memory the agent rounded
    is named as its card has it: H200's 1g.16gb is its 1g.18gb.
    """
    model = model_of(gpu.model)
    if len(gpu.mig_profiles) != 1 or names_part(model):
        return model
    name = gpu.mig_profiles[0].lower()
    card = card_of(model)
    profile = None if card is None else card.profile(name)
    return f"{model}-{name if profile is None else profile.name}"


def check_inventory(gpus: Sequence[Gpu], cards: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Return the GPUs with normal model names, by UUID, or refuse the whole report.

    cards: the card of each MIG instance, where the agent said it.
    Raises: TooManyGpus, GpuNamedTwice, GpuUnreadable, MigImpossible.
    """
    if len(gpus) > GPUS_PER_HOST_MAX:
        raise TooManyGpus(gpus=len(gpus), gpus_max=GPUS_PER_HOST_MAX)
    checked = sorted((_check(gpu, cards) for gpu in gpus), key=lambda gpu: gpu.uuid)
    for earlier, later in pairwise(checked):
        if earlier.uuid == later.uuid:
            raise GpuNamedTwice(gpu_uuid=later.uuid)
    _check_cards(checked)
    return tuple(checked)


def _check_cards(gpus: Sequence[Gpu]) -> None:
    """Refuse MIG instances of one card that its slices cannot hold, and a card beside its parts.

    Compute instances (1c.3g.40gb) share a GPU instance; of which one is not known.
    """
    parts: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if gpu.mig_profiles and gpu.card_uuid is not None:
            parts[gpu.card_uuid].append(gpu)
    for card_uuid, instances in parts.items():
        profiles = [name for gpu in instances for name in gpu.mig_profiles if "c." not in name]
        if any(gpu.uuid == card_uuid for gpu in gpus):
            raise MigImpossible(gpu_uuid=card_uuid, profiles=profiles)
        card = card_of(instances[0].model)
        if card is not None and not coexist(card, profiles):
            raise MigImpossible(gpu_uuid=card_uuid, profiles=too_many(card, profiles))


def check_isolation(
    gpus: Sequence[Gpu], isolation: Isolation, division: Division | None = None
) -> None:
    """Refuse an isolation level that the GPUs cannot give.

    Raises: IsolationUnfit.
    """
    for gpu in gpus:
        fits = bool(gpu.mig_profiles) == (isolation == "mig")
        if not fits or (division is not None and isolation != division.kind):
            raise IsolationUnfit(gpu_uuid=gpu.uuid, isolation=isolation)


def _check(gpu: Gpu, cards: Mapping[str, str]) -> Gpu:
    form = _CARD.fullmatch(gpu.uuid)
    card_uuid = form[1] if form else cards.get(gpu.uuid)
    faults = {
        "uuid": not _UUID.fullmatch(gpu.uuid) or read_share(gpu.uuid) is not None,
        "model": not _is_text(gpu.model),
        "memory_mib": not 0 < gpu.memory_mib <= MEMORY_MIB_MAX,
        "compute_capability": not _CAPABILITY.fullmatch(gpu.compute_capability),
        "driver": not _is_text(gpu.driver),
        "nvlink_group": gpu.nvlink_group is not None and not _is_text(gpu.nvlink_group),
        "mig_profiles": len(gpu.mig_profiles) > PROFILES_MAX
        or not all(_PROFILE.fullmatch(profile.lower()) for profile in gpu.mig_profiles),
    }
    for field, wrong in faults.items():
        if wrong:
            raise GpuUnreadable(gpu_uuid=gpu.uuid[:TEXT_MAX], field=field)
    return replace(
        gpu,
        model=own_model(gpu),
        mig_profiles=tuple(profile.lower() for profile in gpu.mig_profiles),
        card_uuid=card_uuid if gpu.mig_profiles else None,
    )


def _is_text(text: str) -> bool:
    return bool(text.strip()) and len(text) <= TEXT_MAX and text.isprintable()
