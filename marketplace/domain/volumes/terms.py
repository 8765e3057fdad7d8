"""What a volume may be: its name, its size, its time, and where work finds it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.ids import TenantId
from ledger.domain.refusal import Invalid, Refusal, Unknown
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.files.manifest import PathUnsafe, need_path

GIB = 2**30
NAME_LENGTH_MAX = 64
QUOTA_GIB_MAX = 16_384
VOLUMES_MAX = 100
"""That an organisation may keep."""
MOUNTS_MAX = 8
"""That work may name."""
PATH_LENGTH_MAX = 256
LIFE_MIN = timedelta(days=8)
"""Longer than the notice of an expiry."""
LIFE_DEFAULT = timedelta(days=30)
LIFE_MAX = timedelta(days=366)

_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{NAME_LENGTH_MAX - 1}}}")


class VolumeNameUnfit(Invalid):
    """A volume's name is up to 64 small letters, digits, `.`, `_` and `-`.

    It begins with a letter or a digit.
    """


class VolumeSizeOutOfBounds(Invalid):
    """A volume has 1 to 16 384 GiB."""


class VolumeTimeOutOfBounds(Invalid):
    """A volume is kept for 8 to 366 days from now. It may be removed at any time."""


class VolumesUnclear(Invalid):
    """Work names up to 8 volumes, each once and at a path of its own.

    Paths are relative to where the work starts, up to 256 characters long, and none lies in
    another.
    """


class VolumesOnOneHost(Invalid):
    """Work that writes to a volume runs on one host.

    Ask for GPUs of one host, or mount the volume read-only (`--volume NAME:PATH:ro`).
    """


class VolumesFull(Refusal):
    """Your organisation has no room for a volume of that size, or for one more.

    Remove or shrink volumes that nothing uses any more (`offpeak volumes list`).
    """

    status = 413


class VolumeUnknown(Unknown):
    """Your organisation keeps no volume of that name."""


def volume_id_of(tenant_id: TenantId | UUID, name: str) -> UUID:
    """Return the id of a volume: the same for a name that was removed and given again."""
    return uuid5(tenant_id, f"volume {name}")


def version_id_of(volume_id: UUID, version: int) -> UUID:
    """Return the id under which a version uses its blobs."""
    return uuid5(volume_id, f"version {version}")


def need_name(name: str) -> None:
    """Refuse what can be no name.

    Raises: VolumeNameUnfit.
    """
    if not _NAME.fullmatch(name):
        raise VolumeNameUnfit(name=name[:NAME_LENGTH_MAX])


def need_quota(quota_bytes: int) -> None:
    """Refuse a size that no volume has.

    Raises: VolumeSizeOutOfBounds.
    """
    if not GIB <= quota_bytes <= QUOTA_GIB_MAX * GIB:
        raise VolumeSizeOutOfBounds(bytes=quota_bytes)


def need_time(expires_at: datetime, now: datetime) -> None:
    """Refuse a time that is too short for a notice, or too far away.

    Raises: VolumeTimeOutOfBounds.
    """
    if not LIFE_MIN <= expires_at - now <= LIFE_MAX:
        raise VolumeTimeOutOfBounds(expires_at=expires_at)


def need_room(*, quotas: Sequence[int], more: int, bytes_max: int) -> None:
    """Refuse more than an organisation may keep. quotas: of the others that it has.

    Raises: VolumesFull.
    """
    if len(quotas) >= VOLUMES_MAX or sum(quotas) + more > bytes_max:
        raise VolumesFull(
            bytes_used=sum(quotas), bytes_more=more, bytes_max=bytes_max, volumes_max=VOLUMES_MAX
        )


def need_mounts(mounts: Sequence[VolumeMount], *, one_host: bool = True) -> None:
    """Refuse volumes that work cannot find side by side.

    Raises: VolumesUnclear, VolumeNameUnfit, PathUnsafe, VolumesOnOneHost.
    """
    if len(mounts) > MOUNTS_MAX or len({each.name for each in mounts}) < len(mounts):
        raise VolumesUnclear(volumes=[each.name for each in mounts][: MOUNTS_MAX + 1])
    places: list[list[str]] = []
    for mount in mounts:
        need_name(mount.name)
        if len(mount.path) > PATH_LENGTH_MAX:
            raise PathUnsafe(path=repr(mount.path)[:PATH_LENGTH_MAX])
        names = need_path(mount.path)
        if any(names[: len(other)] == other[: len(names)] for other in places):
            raise VolumesUnclear(path=mount.path)
        places.append(names)
    if not one_host and any(each.writable for each in mounts):
        raise VolumesOnOneHost()


def read_mounts(text: str) -> tuple[VolumeMount, ...]:
    """Read volumes of work as people write them: `data weights:in/set:ro`, with spaces between.

    Raises: what `need_mounts` raises.
    """
    found = []
    for word in text.split():
        name, *rest = word.split(":")
        writable = rest[-1:] != ["ro"]
        paths = rest if writable else rest[:-1]
        if len(paths) > 1:
            raise VolumesUnclear(given=word[:PATH_LENGTH_MAX])
        found.append(VolumeMount(name, paths[0] if paths else f"volumes/{name}", writable))
    need_mounts(found)
    return tuple(found)
