"""What `offpeak-agent doctor` says of the Slurm cluster that this host is a node of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .checks import Check
from .gpus.port import GpuFault, Gpus
from .runtimes.slurm_commands import ClusterAway, ClusterRefused, Slurm, absent_programs
from .runtimes.slurm_facts import Node
from .runtimes.slurm_levels import bounded
from .runtimes.slurm_secrets import PLACE, is_in_memory
from .work_as import SLURM, Wish

NAME = "Slurm"
INSTALL = "apt install slurm-client slurmd, and a slurm.conf of the cluster"
ENFORCED = ("associations", "limits", "qos")
BOUNDS = {
    "ConstrainDevices": "GPUs of others are closed to a job",
    "ConstrainRAMSpace": "memory is bounded for each job",
    "ConstrainCores": "cores are bounded for each job",
}


def examine(wish: Wish, make_gpus: Callable[[], Gpus]) -> Iterator[Check]:
    """Yield what the cluster lacks for leased work, in the order in which it is to be mended."""
    if SLURM not in wish.runtimes or wish.cluster is None:
        return
    if absent := absent_programs():
        yield Check(NAME, False, f"{', '.join(absent)} not installed", INSTALL)
        return
    cluster = wish.cluster
    try:
        settings, node = cluster.settings(), cluster.this_node()
    except (ClusterAway, ClusterRefused) as error:
        yield Check(NAME, False, str(error), "systemctl status slurmctld munge; scontrol ping")
        return
    yield Check(NAME, True, f"the cluster {settings.get('ClusterName', '')} answers")
    yield from _settings(settings)
    yield from _node(cluster, node, make_gpus)
    yield _partition(cluster)
    yield _accounting(cluster)
    yield _secrets()


def _settings(settings: dict[str, str]) -> Iterator[Check]:
    enforced = settings.get("AccountingStorageEnforce", "")
    absent = [each for each in ENFORCED if each not in enforced]
    mend = f"AccountingStorageEnforce={','.join(ENFORCED)} in slurm.conf" if absent else ""
    found = f"AccountingStorageEnforce is {enforced}"
    yield Check("bounds of leases", not absent, found, mend)
    if settings.get("DisableRootJobs", "").lower() == "yes":
        mend = "DisableRootJobs=NO, or run the agent as a user of its own"
        yield Check("jobs of the agent", False, "root may not submit jobs", mend)
    for name, means in BOUNDS.items():
        kept = bool(bounded(settings, name))
        mend = "" if kept else f"TaskPlugin=task/cgroup, and {name}=yes in cgroup.conf"
        yield Check(name, True if kept else None, means if kept else f"not so: {means}", mend)


def _node(cluster: Slurm, node: Node | None, make_gpus: Callable[[], Gpus]) -> Iterator[Check]:
    name = f"node {cluster.node}"
    if node is None:
        yield Check(name, False, "the cluster does not know it", "--slurm-node NAME, as of sinfo")
        return
    mend = f"scontrol update NodeName={node.name} State=RESUME" if node.closed else ""
    yield Check(name, not node.closed, node.closed or "takes jobs", mend)
    try:
        gpus = make_gpus()
        uuids = [gpu.uuid for gpu in gpus.inventory()]
        gpus.close()
    except (GpuFault, ImportError):
        return  # told above
    absent = [uuid for uuid in uuids if uuid not in node.gpus]
    if not absent:
        yield Check("GPUs of the node", True, "each is a type of its own, by its UUID")
        return
    lines = "; ".join(f"Name=gpu Type={uuid} File=/dev/nvidiaN" for uuid in absent)
    found = f"the cluster knows no type {', '.join(absent)}"
    mend = f"in gres.conf, with N as of nvidia-smi -q (Minor Number): {lines}"
    yield Check("GPUs of the node", False, found, mend)


def _partition(cluster: Slurm) -> Check:
    name = f"partition {cluster.partition or '(the default)'}"
    try:
        shut = cluster.shut_partition()
    except (ClusterAway, ClusterRefused) as error:
        return Check(name, False, str(error), "--slurm-partition NAME, as of sinfo")
    mend = "scontrol update PartitionName=NAME State=UP; or --slurm-partition NAME" if shut else ""
    return Check(name, not shut, shut or "takes jobs", mend)


def _secrets() -> Check:
    name, memory = "secrets of jobs", is_in_memory(PLACE)
    if not memory:
        mend = f"a tmpfs at {PLACE.parent}: without, work here is handed no secrets"
        return Check(name, None, f"{PLACE.parent} is on a disk", mend)
    return Check(name, True, f"handed over through memory, at {PLACE}")


def _accounting(cluster: Slurm) -> Check:
    name = f"account {cluster.account}"
    try:
        known = cluster.has_account()
    except (ClusterAway, ClusterRefused) as error:
        return Check(name, False, str(error), "systemctl status slurmdbd: QOS are kept there")
    if known:
        return Check(name, True, "the agent may submit jobs in it")
    mend = (
        f"sacctmgr add account {cluster.account}; "
        f"sacctmgr add user {cluster.own_name} account={cluster.account}"
    )
    return Check(name, False, f"{cluster.own_name} may not submit jobs in it", mend)
