"""What runs on leased GPUs: each kind's envelope of memory, compute and time.

The figures are lower bounds to start from, each with its source; a bid that says what it needs
is never overruled by them. Memory of a language model is its parameters × bytes each, plus what
serving or training keeps beside them:

* Serving in 16 bits: 2 bytes a parameter, and about 0.3 of the memory again for the cache of keys
  and values. Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving
  with PagedAttention", SOSP 2023, figure 1: a 13B model on a 40 GB card takes 26 GB for
  weights and over 30 % of the card for the cache.
* Training with Adam in mixed precision: 16 bytes a parameter before activations.
  Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
  Models", SC 2020, section 3.1.
* Fine-tuning with low-rank adapters on 4-bit weights: 65B on one 48 GB card.
  Source: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023, abstract.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ledger.domain.refusal import Invalid
from listings.domain.mig import CARDS
from marketplace.domain.facts.events import GpuRequest
from marketplace.domain.facts.values import TAKES_SHARES

MIB_PER_GIB = 1024


class WorkloadUnknown(Invalid):
    """There is no such kind of workload; `known` lists them.

    Use `other` for anything else and say in the request what the GPUs must be.
    """


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a kind of workload needs at least.

    memory_mib: over all its GPUs together. compute_capability: of each GPU, or None.
    hours_typical: what such work often takes, for a first estimate; None: as long as you like.
    """

    kind: str
    family: str
    title: str
    memory_mib: int
    compute_capability: str | None
    hours_typical: int | None
    because: str


_TABLE = """
inference-7b  | 18  | 7.0 | -   | Serve a 7B model | 7B × 2 bytes ÷ 0.7 (PagedAttention)
inference-13b | 35  | 7.0 | -   | Serve a 13B model | 13B × 2 ÷ 0.7 (PagedAttention)
inference-16b | 43  | 7.0 | -   | Serve a 16B model | 16B × 2 ÷ 0.7 (PagedAttention)
inference-34b | 91  | 8.0 | -   | Serve a 34B model | 34B × 2 ÷ 0.7 (PagedAttention)
inference-70b | 187 | 8.0 | -   | Serve a 70B model | 70B × 2 ÷ 0.7 (PagedAttention)
finetune-7b   | 16  | 8.0 | 4   | Fine-tune a 7B model with adapters | 65B in 48 GB (QLoRA)
finetune-13b  | 20  | 8.0 | 8   | Fine-tune a 13B model with adapters | 65B in 48 GB (QLoRA)
finetune-70b  | 52  | 8.0 | 24  | Fine-tune a 70B model with adapters | 65B in 48 GB (QLoRA)
training      | 16  | 7.0 | 24  | Train a model | 16 bytes a parameter: 1B (ZeRO)
training-7b   | 105 | 8.0 | 168 | Train a 7B model | 7B × 16 bytes (ZeRO)
training-13b  | 194 | 8.0 | 336 | Train a 13B model | 13B × 16 bytes (ZeRO)
render        | 8   | 5.0 | 2   | Render frames | Blender's requirements: 8 GB, Maxwell
video         | 8   | 5.2 | 2   | Transcode or generate video | NVENC sessions at 4K and room
interactive   | 4   | -   | 4   | A notebook or a shell | a small model and its data
other         | 0   | -   | -   | Something else | nothing is assumed
"""
"""Kind, GiB over all GPUs, least compute capability, typical hours (`-`: none), title, and why."""


def _envelope(row: str) -> Envelope:
    kind, gib, capability, hours, title, because = (cell.strip() for cell in row.split("|"))
    return Envelope(
        kind=kind,
        family=kind.split("-")[0],
        title=title,
        memory_mib=int(gib) * MIB_PER_GIB,
        compute_capability=None if capability == "-" else capability,
        hours_typical=None if hours == "-" else int(hours),
        because=because,
    )


ENVELOPES = {each.kind: each for each in map(_envelope, _TABLE.strip().splitlines())}


def workload_named(kind: str) -> Envelope:
    """Return the envelope of a kind.

    Raises: WorkloadUnknown.
    """
    envelope = ENVELOPES.get(kind)
    if envelope is None:
        raise WorkloadUnknown(kind=kind[:64], known=sorted(ENVELOPES))
    return envelope


def complete(request: GpuRequest, kind: str, *, gpus: int) -> GpuRequest:
    """Add what the kind needs to a request that says neither models nor memory.

    The memory is shared evenly by the bid's GPUs, as tensor or data sharding does.
    """
    envelope = workload_named(kind)
    if request.models or request.memory_mib_min is not None:
        return request
    memory = -(-envelope.memory_mib // gpus) or None
    capability = request.compute_capability_min or envelope.compute_capability
    return replace(request, memory_mib_min=memory, compute_capability_min=capability)


def allowed_by(kinds: tuple[str, ...], kind: str) -> bool:
    """Tell if an offer for `kinds` takes `kind`: by its own name, its family's, or as anything."""
    return not kinds or kind in kinds or kind.split("-")[0] in kinds


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """A part of a GPU that can be leased. share_ppm: of the GPU's compute."""

    memory_mib: int
    share_ppm: int
    model: str
    profile: str
    isolation: Literal["whole", "mig", "mps"]


def _slices() -> Iterator[Slice]:
    for model, gib in WHOLE.items():
        yield Slice(gib * MIB_PER_GIB, 1_000_000, model, "whole", "whole")
    for card in CARDS.values():
        for profile in card.profiles:
            whole = profile.compute == card.compute
            if not profile.has_media:
                yield Slice(
                    profile.memory_mib,
                    profile.compute * 1_000_000 // card.compute,
                    card.name,
                    "whole" if whole else profile.name,
                    "whole" if whole else "mig",
                )


WHOLE = {"T4": 15, "L4": 22, "A10": 22, "L40S": 44}
"""Usable GiB of cards that MIG cannot divide, rounded down. Source: their data sheets (16, 24, 24
and 48 GB) less what the driver keeps."""

SLICES = tuple(sorted(_slices()))
"""Whole cards and MIG instances (sources: listings/domain/mig.py)."""


def _shares() -> Iterator[Slice]:
    for whole in SLICES:
        for count in SHARES_ADVISED if whole.profile == "whole" else ():
            percent, memory_mib = 100 // count, whole.memory_mib // count
            profile = f"mps.{percent}.{max(1, round(memory_mib / MIB_PER_GIB))}gb"
            yield Slice(memory_mib, percent * 10_000, whole.model, profile, "mps")


SHARES_ADVISED = (2, 4, 8)
SHARES = tuple(sorted(_shares()))
"""Equal shares of whole cards by MPS, as owners most likely list them."""


def smallest_slices(kind: str, *, gpus: int = 1, isolation: str | None = None) -> tuple[Slice, ...]:
    """Return the slices on which a kind fits when spread over `gpus` of them, smallest first.

    isolation: what the bid takes; shares of GPUs are among them only where it takes those.
    """
    need = -(-workload_named(kind).memory_mib // gpus)
    shares = SHARES if gpus == 1 and isolation in TAKES_SHARES else ()
    return tuple(sorted(each for each in (*SLICES, *shares) if each.memory_mib >= need))


SUGGESTED_MAX = 4


@dataclass(frozen=True, slots=True)
class Advice:
    """What a kind of workload needs, and on what it fits.

    memory_mib: of each of `gpus` GPUs that share it. slices: smallest first, each size once; empty
    where even the largest card is too small, or nothing is known of the kind.
    hours: what such work often takes; None: as long as you like.
    """

    envelope: Envelope
    gpus: int
    memory_mib: int
    slices: tuple[Slice, ...]

    @property
    def hours(self) -> int | None:
        return self.envelope.hours_typical


def advise(kind: str, *, gpus: int = 1, isolation: str | None = None) -> Advice:
    """Return what to ask for, for a kind of workload spread over `gpus` GPUs.

    isolation: the level that the bid takes.

    Raises: WorkloadUnknown.
    """
    envelope = workload_named(kind)
    sizes: dict[tuple[int, int], Slice] = {}
    if envelope.memory_mib:
        for each in smallest_slices(kind, gpus=gpus, isolation=isolation):
            sizes.setdefault((each.memory_mib, each.share_ppm), each)
    return Advice(
        envelope=envelope,
        gpus=gpus,
        memory_mib=-(-envelope.memory_mib // gpus),
        slices=tuple(sizes.values())[:SUGGESTED_MAX],
    )
