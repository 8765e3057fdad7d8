"""`offpeak-agent doctor`: looks at all the agent needs and says how to mend what is amiss."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import slurm_checks
from . import work_checks as work
from .checks import Check as Check
from .gpus.nvml import pids_are_the_hosts
from .gpus.port import GpuFault, Gpus
from .hand.shown import HANDS, last_account
from .measured import HOW, measured
from .reconcile import epoch_ms
from .runtimes.limits import LIMITS, Limits
from .runtimes.mps.owners import OwnersDaemon
from .shares import mps_runs
from .uplink import Refused, Unreachable, Uplink
from .work_as import Wish
from .work_in import PROGRAMS, mps_of

CLOCK_OFFSET_MS_MAX = 2_000
FREE_BYTES_MIN = 256 * 1024 * 1024


def examine(
    *,
    make_gpus: Callable[[], Gpus],
    uplink: Uplink | None,
    state_dir: Path,
    token_file: Path | None,
    mps_pipe: Path | None = None,
    wish: Wish | None = None,
    limits: Limits = LIMITS,
) -> Iterator[Check]:
    """Yield what was found, in the order in which it should be mended.

    uplink: None when there is no token yet. token_file: None when the token comes otherwise.
    wish: as whom leased work is to run; None: as nobody was asked for. limits: of its work.
    """
    yield from _gpus(make_gpus)
    yield _mps(mps_pipe, state_dir)
    yield _namespace()
    yield from work.examine(wish or Wish(), state_dir, limits)
    yield from slurm_checks.examine(wish or Wish(), make_gpus)
    yield _state(state_dir)
    yield from _hand(state_dir)
    yield from _refused(state_dir / "refused.jsonl")
    if token_file is not None:
        yield _token(token_file)
    yield from _server(uplink)


def _gpus(make_gpus: Callable[[], Gpus]) -> Iterator[Check]:
    try:
        gpus = make_gpus()
        found = gpus.inventory()
    except ImportError:
        yield Check("NVML", False, "pynvml is not installed", "pip install nvidia-ml-py")
        return
    except GpuFault as fault:
        mend = "install NVIDIA's driver, or load it: nvidia-smi must work"
        if fault.kind == "driver-mismatch":
            mend = "the driver was updated: restart the host, or reload its kernel module"
        yield Check("NVML", False, fault.detail, mend)
        return
    mend = "" if found else "no GPU is visible, or MIG is on without an instance"
    yield Check("NVML", bool(found), f"{len(found)} leasable GPUs", mend)
    for gpu in found:
        about = f"{gpu.model}, {gpu.memory_mib} MiB, driver {gpu.driver}"
        try:
            reading = gpus.read(gpu.uuid, since_us=time.time_ns() // 1000 - 1_000_000)
        except GpuFault as fault:
            yield Check(gpu.uuid, False, f"{about}: {fault.detail}", "see the kernel log for XID")
            continue
        how = "; ".join(
            HOW.get(each.busy_by, each.busy_by) + ("; its energy is counted" if each.energy else "")
            for each in measured(gpus, [gpu.uuid])
        )
        yield Check(gpu.uuid, True, f"{about}; {len(reading.residents)} processes; {how}")
    yield from _mig(gpus)
    gpus.close()


def _mig(gpus: Gpus) -> Iterator[Check]:
    """Say of each card that knows MIG whether the market can divide it."""
    try:
        cards = gpus.modes()
    except GpuFault:
        return  # told above
    for card in cards:
        name = f"MIG on {card.uuid}"
        if card.mode == "off":
            mend = f"only to let the market divide it: nvidia-smi -i {card.uuid} -mig 1, as root"
            yield Check(name, None, "MIG mode is off: it is leased whole or in shares", mend)
        elif card.mode == "on" and card.instances:
            mend = "to let the market divide it, remove them: nvidia-smi mig -dci, then -dgi"
            found = f"{card.instances} instances are there; those that you made are leased as GPUs"
            yield Check(name, None, found, mend)
        elif card.mode == "on" and not card.allowed:
            found = "MIG mode is on, and the agent may not make instances"
            yield Check(name, False, found, "run the agent as root, or make instances yourself")
        elif card.mode == "on":
            yield Check(name, True, "MIG mode is on: the market makes instances for leases")


def _mps(pipe: Path | None, state_dir: Path) -> Check:
    found = mps_of(pipe, state_dir)
    if not isinstance(found, OwnersDaemon):
        return Check("MPS", True, "the agent runs a control daemon for each card lent by it")
    if mps_runs(found.pipe):
        said = f"your control daemon listens at {found.pipe}: shares by MPS can be leased, "
        mend = "end it, as root, for the agent to run one whose limits work cannot lift"
        return Check("MPS", True, said + "with limits that work can lift", mend)
    mend = f"only for shares by MPS: run the agent as root, with {' and '.join(PROGRAMS)}"
    if pipe is not None:
        mend = "start it: nvidia-cuda-mps-control -d -multiuser-server, or name no --mps-pipe-dir"
    return Check("MPS", None, f"no control daemon listens at {found.pipe}", mend)


def _namespace() -> Check:
    name = "process ids"
    if pids_are_the_hosts():
        return Check(name, True, "the agent sees the host's")
    mend = "run the agent on the host, or its container with --pid=host"
    return Check(name, False, "another pid namespace: processes cannot be attributed", mend)


def _state(state_dir: Path) -> Check:
    name = f"state directory {state_dir}"
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
        probe = state_dir / "doctor.probe"
        with probe.open("wb") as file:
            file.write(b"x")
            os.fsync(file.fileno())
        probe.unlink()
        space = os.statvfs(state_dir)
    except OSError as error:
        mend = "give the agent's user a directory with --state-dir"
        return Check(name, False, f"{error.strerror}", mend)
    free = space.f_bavail * space.f_frsize
    mend = "" if free >= FREE_BYTES_MIN else "free some space: the spool needs it in an outage"
    return Check(name, free >= FREE_BYTES_MIN, f"writable, {free >> 20} MiB free", mend)


def _hand(state_dir: Path) -> Iterator[Check]:
    """Say what the owner lets be done here, and the level that the agent gave when it last ran."""
    account = last_account(state_dir)
    taking, at_host = account["hand"]["taking"], account["hand"]["at_host"]
    where = "offpeak-agent resume" if at_host != "all" else "resume it on the market"
    fine = None if taking != "all" else True
    yield Check("the owner's hand", fine, HANDS[taking], "" if fine else where)
    if level := account.get("level"):
        yield Check("level", True, f"{level}, as the agent last told it")


def _refused(file: Path) -> Iterator[Check]:
    """Show what the market refused for good: it is not there, and nobody sends it again."""
    name = "messages that the market took"
    try:
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        yield Check(name, True, "all")
        return
    except OSError as error:
        yield Check(name, None, f"{file}: {error.strerror}")
        return
    found = f"all but {len(lines)}, which it refused for good" if lines else "all"
    mend = f"show {file} to the market's operator, then move it away" if lines else ""
    yield Check(name, not lines, found, mend)


def _token(token_file: Path) -> Check:
    name = f"token file {token_file}"
    try:
        mode = token_file.stat().st_mode
    except OSError as error:
        return Check(name, False, f"{error.strerror}", "enrol this host: offpeak-agent enrol")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Check(name, False, "others may read it", f"chmod 600 {token_file}")
    return Check(name, True, "only its owner may read it")


def _server(uplink: Uplink | None) -> Iterator[Check]:
    if uplink is None:
        yield Check("server", None, "not asked, for want of a token")
        return
    before_ms = time.time_ns() // 1_000_000
    try:
        answer = uplink.assignments()
    except Refused as error:
        yield Check(
            "server", False, error.sentence, "enrol this host: offpeak-agent enrol URL CODE"
        )
        return
    except Unreachable as error:
        yield Check("server", False, str(error), "check --server, the firewall and certificates")
        return
    after_ms = time.time_ns() // 1_000_000
    yield Check("server", True, f"answers; {len(answer.assignments)} leases here")
    offset_ms = (before_ms + after_ms) // 2 - epoch_ms(answer.server_time)
    fine = abs(offset_ms) <= CLOCK_OFFSET_MS_MAX
    yield Check("clock", fine, f"{offset_ms:+d} ms off the server's", "" if fine else "set up NTP")
