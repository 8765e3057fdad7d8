"""What the agent measures of a lease's work beside its GPUs: processor, disk and network."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import UUID

from metering.agent.runtimes.port import Runtime
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.used import NOT_KNOWN, TICK_MS, Used, Uses
from tests.metering.agent.workloads import processes as processes
from tests.metering.agent.workloads import spec, until

BURNS = "import time\nend = time.time() + 600\nwhile time.time() < end: pass"
CHILDREN = "import subprocess\nwhile True: subprocess.run(['sh', '-c', ': ; : ; :'])"


def grows(runtime: Runtime, command: tuple[str, ...], *, by_ms: int) -> Used:
    """Wait until work has used so much processor time since it was first seen."""
    wanted = spec(*command)
    runtime.start(wanted)
    seen: list[Used] = []

    def enough() -> bool:
        found = runtime.used().get(wanted.lease_id)
        if found is not None and found.cpu_ms is not None:
            seen.append(found)
        return len(seen) > 1 and (seen[-1].since(seen[0]).cpu_ms or 0) >= by_ms

    until(enough)
    return seen[-1].since(seen[0])


def test_processor_time_of_work_is_seen(processes: ProcessRuntime) -> None:
    assert grows(processes, (sys.executable, "-c", BURNS), by_ms=200).cpu_ms


def test_time_of_children_that_ended_counts(processes: ProcessRuntime) -> None:
    assert grows(processes, (sys.executable, "-c", CHILDREN), by_ms=100).cpu_ms


def test_two_leases_are_measured_apart(processes: ProcessRuntime) -> None:
    still = spec("sleep", "600")
    processes.start(still)
    before = processes.used()[still.lease_id]
    grows(processes, (sys.executable, "-c", BURNS), by_ms=300)

    spent = processes.used()[still.lease_id].since(before)
    assert spent.cpu_ms is not None and spent.cpu_ms < 200


def test_work_that_shares_the_hosts_network_has_none_that_is_known(
    processes: ProcessRuntime,
) -> None:
    wanted = spec("sleep", "600")
    processes.start(wanted)
    assert processes.used()[wanted.lease_id].net_bytes is None


def test_sums_that_shrink_or_are_not_known_give_no_difference() -> None:
    before, after = Used(100, 10, None), Used(90, 30, 7)
    assert after.since(before) == Used(None, 20, None)
    assert after.since(NOT_KNOWN) == NOT_KNOWN


def test_without_leases_nobody_is_looked_for(tmp_path: Path) -> None:
    assert Uses(tmp_path).of({}, {}) == {}


LEASE = UUID(int=1)
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 9000 1 0 0 0 0 0 0 9000 1 0 0 0 0 0 0
  tap0: 1200 1 0 0 0 0 0 0 34 1 0 0 0 0 0 0
"""


def process(proc: Path, pid: int, parent: int, *, space: str, cpu_ticks: int = 3) -> None:
    """Write what the kernel says of a process."""
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "net").mkdir()
    times = f"{cpu_ticks} 0 0 0"
    rest = f"S {parent} {pid} {pid} 0 -1 0 0 0 0 0 {times} 20 0 1 0 {1000 + pid} 0 0"
    (folder / "stat").write_text(f"{pid} (a) b) {rest}\n")
    (folder / "io").write_text("rchar: 9\nwchar: 9\nread_bytes: 4096\nwrite_bytes: 100\n")
    (folder / "ns" / "net").symlink_to(space)
    (folder / "net" / "dev").write_text(NET)


def test_disk_and_a_network_of_its_own_are_added_up_for_all_below_its_keeper(
    tmp_path: Path,
) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    process(tmp_path, 11, 10, space="net:[2]")
    process(tmp_path, 12, 11, space="net:[2]", cpu_ticks=7)
    process(tmp_path, 20, 1, space="net:[1]", cpu_ticks=1000)
    (tmp_path / "thread-self").symlink_to("1")

    found = Uses(tmp_path).of({(10, 1010): LEASE}, {})
    assert found == {LEASE: Used((3 + 3 + 7) * TICK_MS, 3 * 4196, 1234)}


def test_a_process_that_took_the_number_of_another_is_not_counted(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    (tmp_path / "thread-self").symlink_to("1")
    assert Uses(tmp_path).of({(10, 999): LEASE}, {}) == {}


def test_what_may_not_be_read_is_not_known(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[2]")
    (tmp_path / "thread-self").symlink_to("1")
    (tmp_path / "10" / "io").unlink()
    (tmp_path / "10" / "io").mkdir()
    found = Uses(tmp_path).of({(10, 1010): LEASE}, {})[LEASE]
    assert (found.io_bytes, found.net_bytes) == (None, 1234)


def test_a_process_of_no_lease_is_read_once(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    process(tmp_path, 20, 1, space="net:[1]")
    (tmp_path / "thread-self").symlink_to("1")
    uses = Uses(tmp_path)
    first = uses.of({(10, 1010): LEASE}, {})
    (tmp_path / "20" / "stat").write_text("nothing that can be read")
    process(tmp_path, 21, 20, space="net:[1]")

    assert uses.of({(10, 1010): LEASE}, {}) == first


def test_a_process_with_the_number_of_one_of_no_lease_is_looked_at(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    process(tmp_path, 20, 1, space="net:[1]")
    (tmp_path / "thread-self").symlink_to("1")
    uses = Uses(tmp_path)
    uses.of({(10, 1010): LEASE}, {})
    (tmp_path / "20").rename(tmp_path / "before")
    process(tmp_path, 20, 10, space="net:[1]", cpu_ticks=5)

    assert uses.of({(10, 1010): LEASE}, {})[LEASE].cpu_ms == (3 + 5) * TICK_MS


def test_a_process_that_comes_to_count_for_a_lease_is_looked_at_anew(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    process(tmp_path, 20, 1, space="net:[1]", cpu_ticks=5)
    (tmp_path / "thread-self").symlink_to("1")
    uses = Uses(tmp_path)
    assert uses.of({(10, 1010): LEASE}, {})[LEASE].cpu_ms == 3 * TICK_MS

    assert uses.of({(10, 1010): LEASE, (20, 1020): LEASE}, {})[LEASE].cpu_ms == (3 + 5) * TICK_MS


def test_a_process_whose_parent_just_ended_is_looked_at_again(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, space="net:[1]")
    process(tmp_path, 10, 1, space="net:[1]")
    process(tmp_path, 12, 11, space="net:[1]", cpu_ticks=5)  # 11 ended while we looked
    (tmp_path / "thread-self").symlink_to("1")
    uses = Uses(tmp_path)
    assert uses.of({(10, 1010): LEASE}, {})[LEASE].cpu_ms == 3 * TICK_MS
    stat = tmp_path / "12" / "stat"
    stat.write_text(stat.read_text().replace("S 11 ", "S 10 "))  # it is its keeper's now

    assert uses.of({(10, 1010): LEASE}, {})[LEASE].cpu_ms == (3 + 5) * TICK_MS
