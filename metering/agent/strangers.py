"""Processes on a card that belong to no lease there, and whether they fill it.

A desktop or a monitor takes some hundred megabytes of a card and is in nobody's way. Whoever holds
more than `FILLED_MIB` takes memory that a lease of the card pays for: no work is started beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from .gpus.port import Reading
from .shares import DAEMONS

FILLED_MIB = 1_024


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process of no lease that runs on its card. memory_mib None: the driver cannot say."""

    pid: int
    owner: UUID | None
    memory_mib: int | None
    said: str


def strangers_of(
    reading: Reading,
    owners: Mapping[int, UUID | None],
    leases: Collection[UUID],
    name_of: Callable[[int], str | None],
    *,
    by_mps: bool,
) -> list[Stranger]:
    """Return the living processes on a card that are of none of `leases`, the ones that run there.

    owners: the lease of each process. by_mps: MPS's own processes belong there.
    """
    found = []
    for resident in reading.residents:
        owner = owners[resident.pid]
        if owner in leases:
            continue
        name = name_of(resident.pid)
        if name is None or (by_mps and owner is None and name.startswith(DAEMONS)):
            continue  # gone already, or of a pid namespace that is not ours; or MPS's own
        whose = f"of lease {owner}" if owner is not None else "of no lease"
        said = f"process {resident.pid} ({name[:64]}) {whose}"
        found.append(Stranger(resident.pid, owner, resident.memory_mib, said))
    return found


def filling(strangers: Iterable[Stranger], elsewhere: Collection[UUID]) -> str:
    """Say who fills a card, and how much of it; empty: nobody does.

    elsewhere: leases that run on other cards. What a lease of this card leaves behind as it ends is
    no stranger's: it is ended with its lease.
    """
    others = [each for each in strangers if each.owner is None or each.owner in elsewhere]
    total = sum(each.memory_mib or 0 for each in others)
    if total <= FILLED_MIB:
        return ""
    most = max(others, key=lambda each: (each.memory_mib or 0, -each.pid))
    return f"{total} MiB are held by others: {most.said}"
