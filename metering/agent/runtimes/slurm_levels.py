"""How far a Slurm cluster keeps leased work apart, by what its settings say that it enforces."""

from __future__ import annotations

from collections.abc import Mapping

from .confinement import Confinement
from .levels import Kept, Sandbox, way_out_of
from .users import WorkUsers

CGROUP = "Slurm's control group"


def sandbox_of(
    settings: Mapping[str, str],
    users: WorkUsers | None,
    confinement: Confinement | None,
) -> Sandbox:
    """Return the level of jobs. settings: as of `scontrol show config`.

    What the cluster only counts (cores without cgroups, memory that nobody polices) is not kept.
    """
    alone = users is None or users.alone
    kept = Kept(
        own_account=users is not None and users.alone,
        confined=confinement is not None,
        own_network=confinement is not None and confinement.separates,
        way_out="" if confinement is None else way_out_of(confinement),
        memory=bounded(settings, "ConstrainRAMSpace"),
        cpu=bounded(settings, "ConstrainCores"),
        devices=bounded(settings, "ConstrainDevices"),
    )
    return kept.sandbox(alone=alone)


def bounded(settings: Mapping[str, str], name: str) -> str:
    """Return what bounds a job by a setting of cgroup.conf; empty: nothing does."""
    by_cgroup = "task/cgroup" in settings.get("TaskPlugin", "")
    return CGROUP if by_cgroup and settings.get(name, "").lower() == "yes" else ""
