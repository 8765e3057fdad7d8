"""A share of a card, as its id says it: `GPU-…/mps-2of4/25pct-5758mib`.

`GPU-…/mig-3g.40gb@4-7` is a MIG instance that the agent makes: its profile and memory slices.

The market's own account of such ids is listings/domain/divisions.py; one test holds both together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PIPE_DIRECTORY = Path("/tmp/nvidia-mps")
"""Where NVIDIA's MPS control daemon listens, unless it is told otherwise."""
PID_FILE = "nvidia-cuda-mps-control.pid"
DAEMONS = "nvidia-cuda-mps"
"""How the names of MPS's own processes begin."""

_SHARE = re.compile(r"(.+)/(mps|timeslice)-[1-9][0-9]?of([0-9a-fx]+)/([0-9]{1,3})pct-([0-9]+)mib")
_SLICE = re.compile(r"(.+)/mig-([1-7]g\.[0-9]{1,3}gb(?:\+me)?)@([0-7])-([0-7])")


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG instance of a card. first, last: the memory slices that it takes."""

    card_uuid: str
    profile: str
    first: int
    last: int

    @property
    def has_media(self) -> bool:
        """Tell if it takes the media engines, of which a card lends one set."""
        return self.profile.endswith("+me")


@dataclass(frozen=True, slots=True)
class Share:
    """What a lease may use of a card. division: alike for shares that are there together."""

    card_uuid: str
    kind: str
    division: str
    compute_percent: int
    memory_mib: int


def share_of(uuid: str) -> Share | None:
    """Return what the id of a share says; None: it is that of a card or of a MIG instance."""
    form = _SHARE.fullmatch(uuid)
    if form is None:
        return None
    return Share(form[1], form[2], f"{form[2]}-{form[3]}", int(form[4]), int(form[5]))


def slice_of(uuid: str) -> Slice | None:
    """Return what the id of an instance to be made says; None: it is that of something else."""
    form = _SLICE.fullmatch(uuid)
    if form is None or form[4] < form[3]:
        return None
    return Slice(form[1], form[2], int(form[3]), int(form[4]))


def card_of(uuid: str) -> str:
    """Return the card that a GPU is, or is a part of, as far as its id says it."""
    part = share_of(uuid) or slice_of(uuid)
    return uuid if part is None else part.card_uuid


def cards_of(uuids: Iterable[str]) -> tuple[str, ...]:
    """Return the cards of these GPUs, each once, in their order."""
    return tuple(dict.fromkeys(map(card_of, uuids)))


def is_mps(uuid: str) -> bool:
    """Tell if a GPU is a share by MPS."""
    share = share_of(uuid)
    return share is not None and share.kind == "mps"


def in_the_way(one: str, other: str) -> bool:
    """Tell if work on two GPUs cannot run at one time: one GPU, or one card in two forms.

    MIG instances are in each other's way where they take the same slices.
    """
    if one == other or card_of(one) != card_of(other):
        return one == other
    this, that = slice_of(one), slice_of(other)
    if this is not None and that is not None:
        media = this.has_media and that.has_media
        return media or (this.first <= that.last and that.first <= this.last)
    first, second = share_of(one), share_of(other)
    return first is None or second is None or first.division != second.division


def environment(uuids: Iterable[str], pipe_directory: Path) -> dict[str, str]:
    """Return the variables by which CUDA keeps work within its shares by MPS; else nothing.

    The limit of memory names a device by its place among those that the work sees.
    Source: NVIDIA, "Multi-Process Service", Environment Variables.
    """
    shares = [share for uuid in uuids if (share := share_of(uuid)) is not None]
    limited = [share for share in shares if share.kind == "mps"]
    if not limited:
        return {}
    places = {card: place for place, card in enumerate(cards_of(s.card_uuid for s in shares))}
    limits = (f"{places[share.card_uuid]}={share.memory_mib}M" for share in limited)
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(s.compute_percent for s in limited)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(limits),
    }


def mps_runs(pipe_directory: Path) -> bool:
    """Tell if an MPS control daemon listens there: its process id is in a file beside its pipe."""
    try:
        pid = int((pipe_directory / PID_FILE).read_text())
        name = Path(f"/proc/{pid}/comm").read_text()
    except (OSError, ValueError):
        return False
    return name.startswith(DAEMONS)
