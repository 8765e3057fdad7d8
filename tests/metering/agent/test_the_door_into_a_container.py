"""A door into work in an image: held as that work is, its filter of system calls included."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import pytest

from metering.agent.access import filtering
from metering.agent.access.allowing import access_of
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.inside import NoWayIn
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.podman import Podman
from metering.agent.work_as import Wish, work_as
from tests.metering.agent.containers import Made, contained, make_image
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.doors import SERVES, Reached
from tests.metering.agent.workloads import end_all
from tests.metering.agent.works import ROOT, ended, program, said, until

pytestmark = ROOT
LOOK = (
    "id -u; id -g; pwd; cat mine; echo; grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs|Seccomp:' "
    "/proc/self/status | tr -d '\\t' | tr '\\n' ' '; echo; ls /proc | grep -c '^[0-9]*$'; "
    "unshare -U true 2>/dev/null && echo nested; cat /proc/1/cgroup /proc/self/cgroup | sort -u "
    "| wc -l; cat /proc/1/cgroup | wc -l; touch /etc/x 2>&1 | grep -c Read-only; "
    "ulimit -u; ulimit -c; echo $OFFPEAK_LEASE_ID"
)
LIMITS = Limits(processes=128, memory_bytes=512 << 20)


def within(
    folder: Path, podman: Podman, image: Made, story: Callable[[Reached], Awaitable[None]]
) -> None:
    folder.mkdir()
    runtime = contained(folder, podman, image, limits=LIMITS)
    lease = program(SERVES, "8888")
    runtime.start(lease)
    until(lambda: "ready" in said(folder, lease))

    async def run() -> None:
        reached = Reached(runtime, folder, lease.lease_id)
        try:
            await asyncio.wait_for(story(reached), 60)
        finally:
            reached.doors.close()

    try:
        asyncio.run(run())
    finally:
        end_all(runtime)


@pytest.mark.parametrize("user", ["", "work"])
def test_a_shell_is_held_as_the_work_in_the_image_is(
    podman: Podman, tmp_path: Path, user: str
) -> None:
    async def story(on: Reached) -> None:
        uid = "1000" if user else "0"
        async with await on.ssh() as ssh:
            lines = str((await ssh.run(LOOK)).stdout).splitlines()
            assert lines[:4] == [uid, uid, "/lease/work", "of the lease"], lines
            for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
                assert f"{name}:{'0' * 16}" in lines[4]
            assert "NoNewPrivs:1" in lines[4] and "Seccomp:2" in lines[4]
            assert int(lines[5]) < 12, "it sees the processes of its lease alone"
            assert lines[6] == lines[7], "it counts for the lease"
            assert lines[8:] == ["1", "128", "0", str(on.lease_id)], "no namespace of its own"

            failed = await ssh.run("echo out; echo err >&2; exit 7")
            assert (failed.stdout, failed.stderr, failed.exit_status) == ("out\n", "err\n", 7)
            assert (await ssh.run("kill -9 $$")).exit_status == 128 + 9
            terminal = await ssh.run("tty; stty size", term_type="xterm", term_size=(91, 17))
            assert "/dev/pts/" in str(terminal.stdout) and "17 91" in str(terminal.stdout)
            async with ssh.start_sftp_client() as files:
                async with files.open("brought", "wb") as file:
                    await file.write(b"by sftp")
                with pytest.raises(asyncssh.SFTPError):
                    await files.open("/etc/brought", "wb")
            assert (await ssh.run("cat brought")).stdout == "by sftp"
            reader, writer = await ssh.open_connection("127.0.0.1", 8888)
            writer.write(b"GET /mine HTTP/1.0\r\n\r\n")
            assert (await reader.read()).endswith(b"of the lease")
        door = await on.door()
        assert str(on.runtime.lease_of(door.pid)) == str(on.lease_id)

    made = make_image(tmp_path / "images" / "made", user=user)
    within(tmp_path / "shell", podman, made, story)


def test_a_port_in_a_container_without_a_network_is_reached(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    async def story(on: Reached) -> None:
        door = await on.door("port")
        reader, writer = await asyncio.open_connection(sock=await door.connect("port", 8888, ""))
        writer.write(b"GET /mine HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"of the lease")
        writer.close()
        with pytest.raises(NoWayIn, match="nothing listens on port 8889"):
            await door.connect("port", 8889, "")

    within(tmp_path / "ports", podman, image, story)


def test_what_is_connected_ends_with_the_container(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    async def story(on: Reached) -> None:
        ssh = await on.ssh()
        door, ports = await on.door(), await on.door("port")
        shell = await ssh.create_process("sleep 300")
        inside = on.runtime.inside(on.lease_id)
        uid = inside.ids + inside.uid
        await asyncio.to_thread(until, lambda: any(each.name == "sleep" for each in of_user(uid)))

        await asyncio.to_thread(on.runtime.kill, on.lease_id)
        await asyncio.wait_for(asyncio.gather(door.ended.wait(), ports.ended.wait()), 20)
        await asyncio.to_thread(ended, on.runtime, on.lease_id)

        assert of_user(uid) == []
        with pytest.raises(NoWayIn):
            await on.door()
        shell.close()
        ssh.abort()

    within(tmp_path / "ends", podman, image, story)


def test_who_has_no_filter_is_told_from_who_has_one() -> None:
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).pause()
    try:
        with pytest.raises(OSError, match="no filter"):
            filtering.filters_of(child)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_where_all_work_is_in_images_shells_need_no_accounts() -> None:
    only_images = work_as(Wish(runtimes=("podman",)))

    assert access_of(None, alone=only_images.has_accounts) == "shell"
