"""What `offpeak-agent doctor` says of how leased work runs on this host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from . import level_checks
from .checks import Check
from .runtimes import egress, groups
from .runtimes.limits import LIMITS, Limits
from .runtimes.users import UsersUnfit, WorkUsers, closed_on_the_way, is_clear
from .work_as import PODMAN, SLURM, Wish, WorkAs, WorkUnsafe, containers_of, egress_of, work_as

BWRAP = "apt install bubblewrap slirp4netns iptables"
INSTALL_PODMAN = "apt install podman runc conmon catatonit slirp4netns iptables"
CDI = ("/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json", "/var/run/cdi/nvidia.yaml")


def examine(wish: Wish, state_dir: Path, limits: Limits = LIMITS) -> Iterator[Check]:
    """Yield as whom work runs, and what keeps the works of two tenants apart."""
    name = "leased work runs"
    yield from _images(wish, state_dir)
    yield from _way_out(wish)
    if wish.runtimes == (PODMAN,):
        return
    try:
        found = work_as(wish)
    except (WorkUnsafe, UsersUnfit) as unsafe:
        yield Check(name, False, "not at all", str(unsafe))
        return
    if found.users is None:
        whom = "as the agent's own user"
        if found.confinement is None:
            yield Check(name, None, f"{whom}, trusted: for demos and for work of your own only")
        else:
            yield Check(name, True, f"{whom}, confined by bubblewrap")
    elif found.users.alone:
        yield from _accounts(name, found.users, state_dir)
        if SLURM not in wish.runtimes:  # there it is the cluster's to bound
            yield _memory()
    else:
        mend = "give it accounts of its own: --work-users 300000-300031"
        yield Check(name, None, f"as {found.users.first.name}, whatever the lease", mend)
    yield from _tenants(found)
    if SLURM not in wish.runtimes:
        yield from level_checks.examine(found, wish.runtimes, limits, state_dir)


def _images(wish: Wish, state_dir: Path) -> Iterator[Check]:
    """Say whether work can run in images, and which are taken."""
    name = "work in images"
    if PODMAN not in wish.runtimes:
        return
    try:
        found = containers_of(wish, state_dir.absolute())
    except WorkUnsafe as unsafe:
        yield Check(name, False, str(unsafe), INSTALL_PODMAN)
        return
    assert found is not None
    kept = f"runs in podman ({found.podman.runtime}, {found.podman.driver})"
    yield Check(name, True, f"{kept}, with a range of user ids for each lease")
    places = [str(wish.images.folder)] if wish.images.folder else []
    places += wish.images.registries
    mend = "" if places else "--images FOLDER, or --registry HOST"
    yield Check("images", bool(places), f"come from {', '.join(places) or 'nowhere'}", mend)
    if wish.images.policy is None:
        yield Check("signatures of images", None, "are not asked for", "--image-policy FILE")
    else:
        yield Check("signatures of images", True, f"are judged by {wish.images.policy}")
    if found.podman.cdi and not any(map(os.path.exists, CDI)):
        mend = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        yield Check("GPUs in containers", False, "no device is described by CDI", mend)


def _way_out(wish: Wish) -> Iterator[Check]:
    """Say where work can connect to, and which names of the owner's list are none."""
    name = "network of confined work"
    if wish.network == "host":
        yield Check(name, None, "the host's own: it reaches all that the host does")
        return
    try:
        found = egress_of(wish)
    except WorkUnsafe as unsafe:
        yield Check(name, False, str(unsafe))
        return
    if wish.network == "none":
        yield Check(name, True, "has no way out")
    elif shutil.which("slirp4netns") is None:
        mend = "apt install slirp4netns"
        yield Check(name, None, "has no way out: slirp4netns is not installed", mend)
    elif found is None:
        yield Check(name, None, f"has no way out: {egress.find(open_=True)[1]}")
    else:
        yield Check(name, True, f"has a way out, held by a {found.said}")
        for nowhere in found.unknown():
            yield Check("allow-list", None, f"{nowhere} has no address that work could reach")


def _accounts(name: str, users: WorkUsers, state_dir: Path) -> Iterator[Check]:
    yield Check(name, True, f"as an account of its own for each lease, {len(users)} in all")
    used = [uid for uid in users.uids if not is_clear(uid)]
    told = f"{len(used)} of them have processes or files: leases that run, or what was left"
    yield Check("work users", None if used else True, told if used else "all are free")
    if (closed := closed_on_the_way(state_dir)) is not None:
        mend = f"chmod o+x {closed}, or choose another --state-dir"
        yield Check("way to the work's folders", False, f"{closed} lets nobody through", mend)


def _memory() -> Check:
    made = groups.make("doctor", Limits())
    bounded = groups.bound_memory(made)
    groups.remove(made)
    whole = "bounded for each lease, by control groups"
    each = "bounded for each process only: the agent cannot write control groups here"
    return Check("memory of work", True if bounded else None, whole if bounded else each)


def _tenants(found: WorkAs) -> Iterator[Check]:
    name = "tenants"
    if found.separates_tenants:
        assert found.confinement is not None
        yield Check(name, True, "are kept apart by bubblewrap, and run here side by side")
    elif found.trusted and found.users is None:
        yield Check(name, None, "are not kept apart: all work here is trusted")
    else:
        why = found.unconfined or "work has the host's network, or shares an account"
        mend = BWRAP if "installed" in why else ""
        yield Check(name, None, f"one at a time on this host: {why}", mend)
