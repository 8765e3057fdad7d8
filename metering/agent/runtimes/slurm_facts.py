"""What a Slurm cluster says, and what follows from it. Pure: no clock, no I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

PREFIX = "offpeak-"
"""How the names of jobs and of their QOS begin; the lease's id follows."""
SPARE_MINUTES = 2
"""Slurm counts whole minutes, and its end is a net below the one that the work's keeper makes."""
TOLERANCE_MS = 10_000
"""A job begins before the work in it and ends after it, by so much at the most."""

OVER = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
ENDS = {
    "CANCELLED": "its job was cancelled on the cluster",
    "DEADLINE": "its job came to its deadline on the cluster",
    "NODE_FAIL": "the cluster gave up the node that its job ran on",
    "BOOT_FAIL": "the cluster could not boot the node for its job",
    "OUT_OF_MEMORY": "its job took more memory than the cluster gave it",
    "PREEMPTED": "its job had to make way for another one on the cluster",
    "TIMEOUT": "the cluster ended its job at the job's time limit",
}
AWAY = re.compile(
    r"Unable to contact|onnection refused|timed out|not responding|onnect(ion)? failure"
    r"|Zero Bytes|temporarily unavailable|PersistInit|persistent connection|Munge|munged"
    r"|shutting down|in (a )?transition|Slurm database",
)
_IN_NODE = re.compile(r"gpu:([^\s,:()]+):([0-9]+)")
_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_FIELD = re.compile(r"(?:^|\s)(\w+)=(\S*)")
_REASON = re.compile(r"^\s*Reason=(.*?)(?: \[[^\]]*\])?\s*$", re.MULTILINE)
_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")

Kind = Literal["missing", "unended", "start", "end", "gpus", "several"]


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the cluster lists it. reason: why it waits, if it does."""

    number: int
    state: str
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Tell if it will never run, or never again."""
        return self.state in OVER

    @property
    def says(self) -> str:
        """Return in words what became of it."""
        why = "" if self.reason in ("", "None") else f": {self.reason}"
        return ENDS.get(self.state, f"its job ended on the cluster ({self.state}{why})")


@dataclass(frozen=True, slots=True)
class Node:
    """The cluster's node that this host is. gpus: how many it has by their type."""

    name: str
    states: tuple[str, ...]
    gpus: dict[str, int]
    cpus: int
    memory_mib: int
    reason: str = ""

    @property
    def closed(self) -> str:
        """Say why no job begins on it; empty: some do."""
        bad = {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "MAINT", "NOT_RESPONDING", "INVAL"}
        if not bad & set(self.states):
            return ""
        return f"{'+'.join(self.states)}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Accounted:
    """What the cluster's accounting says of a job. ended_ms: None: it has not ended there."""

    number: int
    state: str
    started_ms: int | None
    ended_ms: int | None
    gpus: int


@dataclass(frozen=True, slots=True)
class Granted:
    """What this agent measured of a lease's work."""

    started_ms: int
    ended_ms: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which accounting and meter are not at one; the meter is what is billed."""

    kind: Kind
    text: str


def settings_of(text: str) -> dict[str, str]:
    """Read `scontrol show config`, the settings of control groups among it."""
    return dict(_SETTING.findall(text))


def node_of(text: str) -> Node | None:
    """Read `scontrol show node NAME`; None: it tells of no node."""
    fields = dict(_FIELD.findall(text))
    if "NodeName" not in fields:
        return None
    reason = _REASON.search(text)
    return Node(
        name=fields["NodeName"],
        states=tuple(re.split(r"[+*~#!%$@^-]+", fields.get("State", "").strip("*~#!%$@^-"))),
        gpus={name: int(count) for name, count in _IN_NODE.findall(fields.get("Gres", ""))},
        cpus=_whole(fields.get("CPUTot", "")),
        memory_mib=_whole(fields.get("RealMemory", "")),
        reason="" if reason is None else reason[1],
    )


def shut_partition(text: str, name: str = "") -> str:
    """Read `scontrol -o show partition`: why jobs do not begin there; empty: they do.

    name: of the partition; empty: the default one.
    """
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if name in ("", fields.get("PartitionName")) and (name or fields.get("Default") == "YES"):
            state = fields.get("State", "UP")
            return "" if state == "UP" else f"the partition {fields['PartitionName']} is {state}"
    return f"the cluster has no partition {name}" if name else "the cluster has no partition of use"


def jobs_of(text: str) -> dict[str, Job]:
    """Read lines of `squeue -o '%j|%A|%T|%r'`: by name the job that is not over, or the newest."""
    found: dict[str, Job] = {}
    for line in text.splitlines():
        name, number, state, reason = (*line.split("|"), "", "", "")[:4]
        if not number.isdigit():
            continue
        job, known = Job(int(number), state, reason), found.get(name)
        if known is None or (known.is_over, -known.number) > (job.is_over, -job.number):
            found[name] = job
    return found


def accounted_of(text: str) -> list[Accounted]:
    """Read lines of `sacct -P -o JobIDRaw,State,Start,End,AllocTRES`, with times as seconds."""
    found = []
    for line in text.splitlines():
        number, state, start, end, tres = (*line.split("|"), "", "", "", "", "")[:5]
        if not number.isdigit():
            continue
        gpus = _GPUS.search(tres)
        found.append(
            Accounted(
                number=int(number),
                state=state.partition(" ")[0],
                started_ms=_moment_ms(start),
                ended_ms=_moment_ms(end),
                gpus=0 if gpus is None else int(gpus[1]),
            )
        )
    return found


def differences(granted: Granted, accounted: Sequence[Accounted]) -> list[Difference]:
    """Return in what the cluster's accounting of a lease's jobs is not what was measured."""
    ran = [each for each in accounted if each.started_ms is not None and each.gpus]
    if not ran:
        return [Difference("missing", "the cluster's accounting knows of no job that ran")]
    return list(_differences(granted, ran))


def _differences(granted: Granted, ran: Sequence[Accounted]) -> Iterator[Difference]:
    if len(ran) > 1:
        numbers = ", ".join(str(each.number) for each in ran)
        yield Difference("several", f"the cluster's accounting knows of the jobs {numbers}")
        return
    (job,) = ran
    assert job.started_ms is not None
    # Its seconds are rounded down.
    if not -1_000 <= granted.started_ms - job.started_ms <= TOLERANCE_MS:
        yield Difference("start", _both("began", granted.started_ms, job.started_ms))
    if job.ended_ms is None:
        yield Difference("unended", "the cluster's accounting has no end of the job")
    elif not -TOLERANCE_MS <= granted.ended_ms - job.ended_ms < 1_000:
        yield Difference("end", _both("ended", granted.ended_ms, job.ended_ms))
    if job.gpus != granted.gpus:
        yield Difference("gpus", f"measured {granted.gpus} GPUs, the cluster gave {job.gpus}")


def _both(what: str, ours_ms: int, theirs_ms: int) -> str:
    apart_s = (theirs_ms - ours_ms) / 1000
    return f"by the cluster's accounting the job {what} {apart_s:+.1f} s from when the work did"


def minutes_until(end_ms: int, *, now_ms: int) -> int:
    """Return the time limit of a job that begins now for work that is over by `end_ms`."""
    return max(0, -((now_ms - end_ms) // 60_000)) + SPARE_MINUTES


def gres_of(gpu_uuids: Collection[str]) -> str:
    """Return these GPUs as a job asks for them: each card is a type of its own."""
    return ",".join(f"gpu:{uuid}:1" for uuid in gpu_uuids)


def share_of_node(node: Node, gpus: int) -> tuple[int, int]:
    """Return the cores and the MiB of memory that go with so many of a node's GPUs."""
    whole = max(gpus, sum(node.gpus.values()))
    cores = max(1, node.cpus * gpus // whole)
    # What the host itself needs is not the work's: a tenth stays.
    return cores, max(1, node.memory_mib * 9 * gpus // (10 * whole))


def refusal_of(said: str) -> str:
    """Return the reason in what a command says that came to nothing."""
    lines = [line.partition("error: ")[2] or line for line in said.strip().splitlines()]
    return ". ".join(dict.fromkeys(filter(None, map(str.strip, lines))))[:500]


def is_away(said: str) -> bool:
    """Tell if a command came to nothing because a daemon of the cluster did not answer."""
    return AWAY.search(said) is not None


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _moment_ms(text: str) -> int | None:
    return int(text) * 1000 if text.isdigit() and text != "0" else None
