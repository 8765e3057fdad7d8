"""As whom leased work runs on this host: judged once, for `run` and `doctor` alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .runtimes import egress, podman
from .runtimes.confinement import Confinement, Network, find
from .runtimes.egress import Egress, Entry
from .runtimes.images import Containers, Sources
from .runtimes.slurm_commands import Slurm
from .runtimes.users import WorkUsers, named, read_users

ROOT = (
    "as root, leased work would be root too and could read this host's token and everything else: "
    "name accounts for it, such as --work-users 300000-300031"
)
OWN_USER = (
    "leased work would run as the agent's own user and could read its token and end it: run the "
    "agent as root with --work-users 300000-300031, or install bubblewrap"
)
ROOT_TRUSTS_NOTHING = "root trusts no leased work: --trust-work goes with --simulate only"


PROCESS, PODMAN, SLURM = RUNTIMES = "process", "podman", "slurm"
SLURM_ALONE = "slurm goes with no other runtime: all leased work of such a host is jobs"


NOWHERE = Sources()


class WorkUnsafe(ValueError):
    """Leased work must not run like this; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the operator asked for.

    users, user: accounts for leased work, one for each lease, or one for all. trusted: work may
    run as the agent's own user. pretended: the GPUs are made up. confine: use bubblewrap if it is
    there. network, readable: of confined work; allowed: what it may connect to, beside public
    addresses with `private`, and alone with `allow`. runtimes: what work may run in: `process`,
    `podman`, or `slurm` alone. images: where images come from. cluster: of `slurm`.
    """

    users: str | None = None
    user: str | None = None
    trusted: bool = False
    pretended: bool = False
    confine: bool = True
    network: Network = "private"
    allowed: tuple[Entry, ...] = ()
    readable: tuple[Path, ...] = ()
    runtimes: tuple[str, ...] = (PROCESS,)
    images: Sources = NOWHERE
    cluster: Slurm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkAs:
    """How leased work runs here.

    users: accounts of which each lease has one; None: the agent's own. confinement: None without;
    `unconfined` says why. trusted: the operator vouches for all work that comes. bare: work without
    an image is run.
    """

    users: WorkUsers | None
    confinement: Confinement | None
    unconfined: str
    trusted: bool
    bare: bool = True

    @property
    def has_accounts(self) -> bool:
        """Tell if each lease has accounts that are its own, so that one can be let into it."""
        return not self.bare or (self.users is not None and self.users.alone)

    @property
    def separates_tenants(self) -> bool:
        """Tell if works of two tenants can run here side by side."""
        if not self.bare:
            return True
        alone = self.users is None or self.users.alone
        return alone and self.confinement is not None and self.confinement.separates


def work_as(wish: Wish, *, uid: int | None = None) -> WorkAs:
    """Return how leased work is to run; uid: of the agent, by default this process's.

    Raises: WorkUnsafe, UsersUnfit.
    """
    root = (os.geteuid() if uid is None else uid) == 0
    if SLURM in wish.runtimes and len(wish.runtimes) > 1:
        raise WorkUnsafe(SLURM_ALONE)
    out = egress_of(wish)
    if wish.runtimes == (PODMAN,):
        return WorkAs(users=None, confinement=None, unconfined="", trusted=False, bare=False)
    if wish.users is not None and wish.user is not None:
        raise WorkUnsafe("either --work-users, one account for each lease, or --work-user for all")
    users = None
    if wish.users is not None:
        users = WorkUsers(read_users(wish.users))
    elif wish.user is not None:
        users = WorkUsers([named(wish.user)], alone=False)
    if users is not None and not root:
        raise WorkUnsafe("only root can run leased work as another user: run the agent as root")
    if users is None and root and not (wish.trusted and wish.pretended):
        raise WorkUnsafe(ROOT_TRUSTS_NOTHING if wish.trusted else ROOT)
    confinement, unconfined = None, "it was asked not to be used (--confine off)"
    if wish.confine and not (users is None and root):
        first = None if users is None else users.first
        confinement, unconfined = find(
            network=wish.network, readable=wish.readable, user=first, egress=out
        )
    if wish.network == "allow" and confinement is None:
        raise WorkUnsafe(f"--work-network allow needs bubblewrap around the work: {unconfined}")
    if users is None and not root and confinement is None and not wish.trusted:
        raise WorkUnsafe(f"{OWN_USER} ({unconfined})")
    return WorkAs(users=users, confinement=confinement, unconfined=unconfined, trusted=wish.trusted)


def egress_of(wish: Wish) -> Egress | None:
    """Return what the work here may reach; None: it has no way out, or the host's network.

    Raises: WorkUnsafe, where what was asked for cannot be had.
    """
    listed = wish.network == "allow"
    if listed and not wish.allowed:
        raise WorkUnsafe(
            "--work-network allow needs what is allowed: --allow-egress models.example:443"
        )
    if wish.network not in ("private", "allow"):
        if wish.allowed:
            raise WorkUnsafe(f"--allow-egress says nothing with --work-network {wish.network}")
        return None
    found, why = egress.find(wish.allowed, open_=not listed)
    if found is None and wish.allowed:
        raise WorkUnsafe(why)
    return found


def containers_of(wish: Wish, state_dir: Path) -> Containers | None:
    """Return podman, if work may run in images; None: it may not.

    Raises: WorkUnsafe, where it cannot be had.
    """
    if PODMAN not in wish.runtimes:
        return None
    found, why = podman.find(
        state_dir / "podman",
        network=wish.network,
        readable=wish.readable,
        registries=wish.images.registries,
        cdi=not wish.pretended,
        egress=egress_of(wish),
    )
    if found is None:
        raise WorkUnsafe(f"no work can run in images here: {why}")
    return Containers(found, wish.images)
