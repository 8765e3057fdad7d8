"""MIG instances by NVIDIA's NVML: finding, making and removing them.

Facts it rests on (NVML reference, "Multi Instance GPU Management"; MIG User Guide): an instance is
a GPU instance with a place among the card's memory slices, and a compute instance in it, which has
the UUID that CUDA takes; making and removing need root, or access to nvidia-caps' `mig/config`; a
GPU instance with a compute instance in it, or a compute instance in use, is not removed (IN_USE);
instances do not outlive a restart of the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any

from .port import Instance, InstanceBusy, InstanceRefused, MigMode

PROFILES_MAX = 64
"""Numbers of profiles that are asked for; the driver of today knows 18."""
INSTANCES_MAX = 8
NAME_PREFIX = "MIG "
NOT_ROOT = "the agent may not make MIG instances: run it as root"
MODE_OFF = "MIG mode is off: nvidia-smi -mig 1 on the host, as root"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as the driver of this card has it: its id there, its name, its compute slices."""

    number: int
    name: str
    compute: int


def mode_of(nvml: Any, card: Any) -> MigMode:
    """Return whether MIG mode is on; `none`: the card does not know it."""
    try:
        current = nvml.nvmlDeviceGetMigMode(card)[0]
    except nvml.NVMLError:
        return "none"
    return "on" if current == nvml.NVML_DEVICE_MIG_ENABLE else "off"


def profiles_of(nvml: Any, card: Any) -> Iterator[Profile]:
    """Yield the profiles of a card. A driver too old to name them has them named by size."""
    for number in range(min(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT, PROFILES_MAX)):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, number, version=2)
            name = info.name if isinstance(info.name, str) else info.name.decode()
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                continue
            try:
                info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, number, version=1)
            except nvml.NVMLError:
                continue
            media = "+me" if number == nvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 else ""
            name = f"{info.sliceCount}g.{-(-info.memorySizeMB // 1024)}gb{media}"
        yield Profile(info.id, name.removeprefix(NAME_PREFIX).strip().lower(), info.sliceCount)


def profile_named(nvml: Any, card: Any, name: str) -> Profile:
    """Return a card's profile by its name. Raises: InstanceRefused."""
    known = list(profiles_of(nvml, card))
    for each in known:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in known) or "none"
    raise InstanceRefused(f"the driver has no MIG profile {name} for this card; it has {names}")


def instances_of(nvml: Any, card: Any, card_uuid: str) -> tuple[Instance, ...]:
    """Return every GPU instance of a card, whoever made it.

    Raises: NVMLError; NO_PERMISSION where only root may know.
    """
    if mode_of(nvml, card) != "on":
        return ()
    devices = devices_of(nvml, card)
    found = []
    for profile in profiles_of(nvml, card):
        for handle in _listed(nvml.nvmlDeviceGetGpuInstances, card, profile.number, nvml):
            info = nvml.nvmlGpuInstanceGetInfo(handle)
            place = info.placement
            found.append(
                Instance(
                    card_uuid=card_uuid,
                    number=info.id,
                    profile=profile.name,
                    first=place.start,
                    last=place.start + place.size - 1,
                    uuid=devices.get(info.id),
                )
            )
    return tuple(found)


def make(nvml: Any, card: Any, card_uuid: str, name: str, first: int, last: int) -> Instance:
    """Make a GPU instance at its place and one compute instance that has all of it.

    Raises: InstanceRefused, InstanceBusy, when there is none of it; NVMLError otherwise.
    """
    profile = profile_named(nvml, card, name)
    place = nvml.c_nvmlGpuInstancePlacement_t(first, last - first + 1)
    places = _places(nvml, card, profile.number)
    if (first, last - first + 1) not in places:
        raise InstanceRefused(f"the card has no place for {name} at the slices {first}-{last}")
    try:
        handle = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, profile.number, byref(place))
    except nvml.NVMLError as error:
        raise _refusal(nvml, error, f"{name} at {first}-{last}") from error
    try:
        number = nvml.nvmlGpuInstanceGetInfo(handle).id
        nvml.nvmlGpuInstanceCreateComputeInstance(handle, _whole(nvml, handle, profile.compute))
        uuid = devices_of(nvml, card)[number]
    except (nvml.NVMLError, KeyError) as error:
        remove_part(nvml, handle)
        raise InstanceRefused(f"no compute instance could be made in {name}: {error}") from error
    return Instance(card_uuid, number, profile.name, first, last, uuid)


def remove(nvml: Any, card: Any, instance: Instance) -> None:
    """Remove an instance and what is in it. Raises: InstanceBusy, NVMLError."""
    profile = profile_named(nvml, card, instance.profile)
    for handle in _listed(nvml.nvmlDeviceGetGpuInstances, card, profile.number, nvml):
        if nvml.nvmlGpuInstanceGetInfo(handle).id == instance.number:
            remove_part(nvml, handle)


def remove_part(nvml: Any, handle: Any) -> None:
    """Remove a GPU instance by its handle, its compute instances first."""
    try:
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            try:
                shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
                info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, number, shared)
                inner = _listed(nvml.nvmlGpuInstanceGetComputeInstances, handle, info.id, nvml)
            except nvml.NVMLError as error:
                if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                    continue
                raise
            for compute in inner:
                nvml.nvmlComputeInstanceDestroy(compute)
        nvml.nvmlGpuInstanceDestroy(handle)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_IN_USE:
            raise InstanceBusy("a process still uses the MIG instance") from error
        raise


def _whole(nvml: Any, handle: Any, compute: int) -> int:
    """Return the id of the compute profile that has all slices of a GPU instance."""
    shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(handle, number, shared)
        except nvml.NVMLError:
            continue
        if info.sliceCount == compute:
            return int(info.id)
    raise KeyError(f"no compute profile of {compute} slices")


def devices_of(nvml: Any, card: Any) -> Mapping[int, str]:
    """Return the UUIDs that CUDA takes, by the number of their GPU instance."""
    found: dict[int, str] = {}
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, slot)
            found[nvml.nvmlDeviceGetGpuInstanceId(device)] = nvml.nvmlDeviceGetUUID(device)
        except nvml.NVMLError:
            continue  # an empty slot
    return found


def _places(nvml: Any, card: Any, profile: int) -> set[tuple[int, int]]:
    count = c_uint()
    ask = nvml.nvmlDeviceGetGpuInstancePossiblePlacements
    try:
        ask(card, profile, None, byref(count))
        places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
        ask(card, profile, places, byref(count))
    except nvml.NVMLError as error:
        raise _refusal(nvml, error, "an instance") from error
    return {(place.start, place.size) for place in places}


def _listed(ask: Any, of: Any, profile: int, nvml: Any) -> list[Any]:
    """Return the handles that NVML lists of GPU instances, or of compute instances in one."""
    kind = nvml.c_nvmlGpuInstance_t
    if ask is nvml.nvmlGpuInstanceGetComputeInstances:
        kind = nvml.c_nvmlComputeInstance_t
    handles, count = (kind * INSTANCES_MAX)(), c_uint(INSTANCES_MAX)
    ask(of, profile, handles, byref(count))
    return list(handles[: count.value])


def _refusal(nvml: Any, error: Any, what: str) -> Exception:
    """Return what is told of NVML's refusal to make an instance; other errors as they are."""
    reasons = {
        nvml.NVML_ERROR_NOT_SUPPORTED: MODE_OFF,
        nvml.NVML_ERROR_NO_PERMISSION: NOT_ROOT,
        nvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "other MIG instances on the card take its room",
        nvml.NVML_ERROR_INVALID_ARGUMENT: "the driver knows no such place",
    }
    if error.value == nvml.NVML_ERROR_IN_USE:
        return InstanceBusy(f"{what}: the card is in use by another client")
    reason = reasons.get(error.value)
    return error if reason is None else InstanceRefused(f"{what} cannot be made: {reason}")
