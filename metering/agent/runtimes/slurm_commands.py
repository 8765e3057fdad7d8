"""The commands of Slurm as the agent calls them: each returns what was said, or raises.

They find nothing of the agent's environment but where the cluster's settings are, so that no
token of the agent and no variable of a tenant gets into a job.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from . import slurm_job
from .slurm_facts import (
    PREFIX,
    Accounted,
    Job,
    Node,
    accounted_of,
    is_away,
    jobs_of,
    node_of,
    refusal_of,
    settings_of,
    share_of_node,
    shut_partition,
)

COMMAND_SECONDS_MAX = 30
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin"
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "sacctmgr")
ACCOUNT = "offpeak"
SPARE_SECONDS = 3600
"""A job is looked for in the accounting from so long before its work began."""


class ClusterAway(Exception):
    """A daemon of the cluster did not answer: nobody knows whether it did what was asked."""


class ClusterRefused(Exception):
    """The cluster does not do what was asked; the text says why, in its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a job asks of the cluster. cores, memory_mib: 0: what goes with so many GPUs there."""

    name: str
    gres: str
    gpus: int
    cores: int
    memory_mib: int
    minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """The cluster that this host is a node of.

    node: this host's name there. account: of the jobs. partition: empty: the default one.
    conf: where its settings are, by SLURM_CONF; empty: where Slurm looks by itself.
    """

    node: str
    account: str = ACCOUNT
    partition: str = ""
    conf: str = field(default_factory=lambda: os.environ.get("SLURM_CONF", ""))

    def settings(self) -> dict[str, str]:
        """Return the cluster's settings. Raises: ClusterAway, ClusterRefused."""
        return settings_of(self._call("scontrol", "show", "config"))

    def this_node(self) -> Node | None:
        """Return this host as the cluster knows it. Raises: ClusterAway, ClusterRefused."""
        return node_of(self._call("scontrol", "show", "node", self.node))

    def shut_partition(self) -> str:
        """Return why the partition takes no job for this node; empty: it does.

        Raises: ClusterAway, ClusterRefused.
        """
        said = self._call("scontrol", "-o", "show", "partition", *filter(None, [self.partition]))
        return shut_partition(said, self.partition)

    def jobs(self, names: Collection[str]) -> dict[str, Job]:
        """Return the jobs of these names that the cluster still lists, by name.

        Raises: ClusterAway, ClusterRefused.
        """
        listed = ("-h", "-t", "all", f"--name={','.join(sorted(names))}", "-o", "%j|%A|%T|%r")
        return jobs_of(self._call("squeue", *listed)) if names else {}

    def add_qos(self, ask: Ask, mark: str) -> None:
        """Make the QOS that bounds a lease: its GPUs, its time, one job and no second one.

        mark: of the agent whose lease it is: other agents leave it alone.
        Raises: ClusterAway, ClusterRefused.
        """
        bounds = (
            f"Description={mark}",
            f"GrpTRES=gres/gpu={ask.gpus}",
            f"MaxWall={ask.minutes}",
            "GrpSubmitJobs=1",
            "Flags=DenyOnLimit",
        )
        self._change("add", "qos", ask.name, "set", *bounds)
        whose = ("where", f"name={self.own_name}", f"account={self.account}")
        self._change("modify", "user", *whose, "set", f"qos+={ask.name}")

    def extend(self, name: str, job: Job, minutes: int) -> None:
        """Move a job's time limit. Raises: ClusterAway, ClusterRefused."""
        self._change("modify", "qos", "where", f"name={name}", "set", f"MaxWall={minutes}")
        self._call("scontrol", "update", f"JobId={job.number}", f"TimeLimit={minutes}")

    def all_qos(self, mark: str) -> list[str]:
        """Return the names of the QOS that an agent made. Raises: ClusterAway, ClusterRefused."""
        said = self._call("sacctmgr", "-n", "-P", "list", "qos", "format=name,description")
        found = (line.partition("|") for line in said.splitlines())
        return [name for name, _, of in found if name.startswith(PREFIX) and of == mark]

    def remove_qos(self, names: Sequence[str]) -> None:
        """Remove QOS. Raises: ClusterAway, ClusterRefused."""
        self._change("delete", "qos", "where", f"name={','.join(names)}")

    def submit(self, ask: Ask, folder: Path, lock: int) -> int:
        """Submit the job that keeps the work of a folder; return its number.

        lock: a file that the command holds while it is at it, also when the agent is killed.
        Raises: ClusterAway, ClusterRefused.
        """
        node = self.this_node()
        if node is None:
            raise ClusterRefused(f"it knows no node {self.node}")
        its_cores, its_mib = share_of_node(node, ask.gpus)
        cores, memory_mib = ask.cores or its_cores, ask.memory_mib or its_mib
        program = [sys.executable, "-I", "-S", slurm_job.__file__, str(folder)]
        options = [
            *("--parsable", "--no-requeue", "--open-mode=append", "--chdir=/", "--input=none"),
            *(f"--job-name={ask.name}", f"--comment={ask.name}", f"--qos={ask.name}"),
            *(f"--account={self.account}", f"--nodelist={self.node}", "--nodes=1", "--ntasks=1"),
            *(
                f"--gres={ask.gres}",
                f"--cpus-per-task={ask.cores or cores}",
                f"--mem={ask.memory_mib or memory_mib}M",
            ),
            *(f"--time={ask.minutes}", f"--output={folder}/keeper.log"),
        ]
        if self.partition:
            options.append(f"--partition={self.partition}")
        script = f"#!/bin/sh\nexec {shlex.join(program)}\n"
        said = self._call("sbatch", *options, given=script, files=(lock,))
        number = said.strip().partition(";")[0]
        if not number.isdigit():
            raise ClusterAway(f"sbatch said {said.strip()[:100]!r}")
        return int(number)

    def has_account(self) -> bool:
        """Tell if the agent may submit jobs in its account. Raises: ClusterAway, ClusterRefused."""
        whose = (f"user={self.own_name}", f"account={self.account}", "format=account")
        return bool(self._call("sacctmgr", "-n", "-P", "list", "associations", *whose).strip())

    @property
    def own_name(self) -> str:
        """Return the name of the account that the agent runs as."""
        return pwd.getpwuid(os.geteuid()).pw_name

    def cancel(self, names: Collection[str]) -> None:
        """Cancel the jobs of these names. Raises: ClusterAway, ClusterRefused."""
        for name in sorted(names):
            self._call("scancel", "--quiet", f"--name={name}")

    def accounted(self, name: str, *, since_ms: int) -> list[Accounted]:
        """Return what the accounting says of jobs of a name. Raises: ClusterAway, ClusterRefused.

        since_ms: when the work of the lease began.
        """
        since = datetime.fromtimestamp(since_ms / 1000 - SPARE_SECONDS, UTC)
        told = ("-n", "-X", "-P", "--duplicates", "--allusers", f"--name={name}")
        window = (f"--starttime={since:%Y-%m-%dT%H:%M:%S}", "--endtime=now")
        form = "--format=JobIDRaw,State,Start,End,AllocTRES"
        return accounted_of(self._call("sacct", *told, *window, form))

    def _change(self, *words: str) -> None:
        """Change what the accounting knows; that there is nothing to change is fine."""
        try:
            self._call("sacctmgr", "-i", *words)
        except ClusterRefused as refused:
            if not any(each in str(refused) for each in ("Nothing", "already exist")):
                raise

    def _call(self, program: str, *words: str, given: str = "", files: Sequence[int] = ()) -> str:
        try:
            done = subprocess.run(
                [program, *words],
                env=self._variables,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS_MAX,
                pass_fds=files,
                cwd="/",
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterAway(f"{program} had no answer for {COMMAND_SECONDS_MAX} s") from None
        except OSError as error:
            raise ClusterAway(f"{program}: {error.strerror}") from error
        if done.returncode == 0:
            return done.stdout
        said = f"{done.stderr}\n{done.stdout}"
        if is_away(said):
            raise ClusterAway(refusal_of(said))
        raise ClusterRefused(refusal_of(said) or f"{program} failed without a word")

    @property
    def _variables(self) -> dict[str, str]:
        # Times as seconds: those of accounting are else in the host's zone, and twice in autumn.
        known = {"PATH": FOLDERS, "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        return known | ({"SLURM_CONF": self.conf} if self.conf else {})


def absent_programs() -> list[str]:
    """Return what of Slurm is not installed here."""
    return [each for each in PROGRAMS if shutil.which(each, path=FOLDERS) is None]
