"""A door leads into the work of one lease, with the rights of that work and no others."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import asyncssh
import pytest

from metering.agent.access.doors import Doors
from metering.agent.runtimes import groups
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.inside import NoWayIn
from metering.agent.runtimes.limits import Limits
from tests.metering.agent.doors import SERVES, Reached
from tests.metering.agent.works import ROOT, accounts, ended, program, running, state, until

pytestmark = ROOT

LOOK = (
    "id -u; id -g; id -G; pwd; cat mine; echo; grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs' "
    "/proc/self/status | tr -d '\\t' | tr '\\n' ' '; echo; ls /proc | grep -c '^[0-9]*$'; "
    "unshare -U true 2>/dev/null && echo nested; ls /root /var/lib 2>&1 | head -3; "
    "echo $OFFPEAK_LEASE_ID"
)
LIMITS = Limits(processes=256, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors")


def within(
    folder: Path, story: Callable[[Reached], Awaitable[None]], *, confined: bool = True
) -> None:
    users = accounts(2)
    with (
        running(folder, users=users, confined=confined, limits=LIMITS) as runtime,
        ExitStack() as ended_last,
    ):
        lease = program(SERVES, "8888" if confined else "0")
        runtime.start(lease)
        ended_last.callback(runtime.kill, lease.lease_id)
        until(lambda: state(runtime, lease.lease_id) == "running")
        output = folder / "leases" / str(lease.lease_id) / "stdout.log"
        until(lambda: output.exists() and "ready" in output.read_text())

        async def run() -> None:
            reached = Reached(runtime, folder, lease.lease_id)
            try:
                await asyncio.wait_for(story(reached), 60)
            finally:
                reached.doors.close()

        asyncio.run(run())


def test_a_shell_has_the_rights_of_the_work_and_sees_what_it_sees(place: Path) -> None:
    async def story(on: Reached) -> None:
        uid = on.runtime.inside(on.lease_id).uid
        async with await on.ssh() as ssh:
            said = await ssh.run(LOOK)
            lines = str(said.stdout).splitlines()
            assert lines[:5] == [str(uid)] * 2 + [str(uid)] + ["/lease/work", "of the lease"], said
            assert "CapPrm:0000000000000000 CapEff:0000000000000000" in lines[5]
            assert "CapBnd:0000000000000000 CapAmb:0000000000000000" in lines[5]
            assert "NoNewPrivs:1" in lines[5]
            assert int(lines[6]) < 12, "it sees the processes of its lease alone"
            assert "nested" not in lines
            assert lines[-1] == str(on.lease_id)

            failed = await ssh.run("echo out; echo err >&2; exit 7")
            assert (failed.stdout, failed.stderr, failed.exit_status) == ("out\n", "err\n", 7)
            assert (await ssh.run("kill -9 $$")).exit_status == 128 + 9
            echoed = await ssh.run("wc -c", input="x" * 300_000)
            assert str(echoed.stdout).strip() == "300000"
            large = await ssh.run("head -c 9000000 /dev/zero | tr '\\0' a")
            assert len(str(large.stdout)) == 9_000_000
            left_open = await ssh.run("sleep 300 & echo here")
            assert left_open.stdout == "here\n"

            terminal = await ssh.run("tty; stty size", term_type="xterm", term_size=(91, 17))
            assert "/dev/pts/" in str(terminal.stdout) and "17 91" in str(terminal.stdout)

            async with ssh.start_sftp_client() as files:
                async with files.open("brought", "wb") as file:
                    await file.write(b"by sftp")
                assert await files.listdir("/lease/work") != []
            assert (await ssh.run("cat brought")).stdout == "by sftp"

            reader, writer = await ssh.open_connection("127.0.0.1", 8888)
            writer.write(b"GET /mine HTTP/1.0\r\n\r\n")
            assert (await reader.read()).endswith(b"of the lease")
            with pytest.raises(asyncssh.ChannelOpenError):
                await ssh.open_connection("10.0.0.1", 80)
        assert str(on.lease_id) == str(on.runtime.lease_of((await on.door()).pid))

    within(place / "shell", story)


def test_who_hangs_up_leaves_nothing_behind(place: Path) -> None:
    async def story(on: Reached) -> None:
        ssh = await on.ssh()
        process = await ssh.create_process("trap '' TERM; sleep 321; true")
        uid = on.runtime.inside(on.lease_id).uid

        def sleeps() -> bool:
            return any(each.name == "sleep" for each in of_user(uid))

        await asyncio.to_thread(until, sleeps)
        ssh.abort()
        await asyncio.to_thread(until, lambda: not sleeps())
        process.close()

    within(place / "hang-up", story)


def test_only_who_holds_the_key_of_the_permit_gets_a_shell(place: Path) -> None:
    async def story(on: Reached) -> None:
        other = asyncssh.generate_private_key("ssh-ed25519")
        with pytest.raises(asyncssh.PermissionDenied):
            await on.ssh(client_keys=[other])
        with pytest.raises(asyncssh.PermissionDenied):
            await on.ssh(client_keys=None, password="guess", preferred_auth="password")
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            wrong = other.export_public_key().decode()
            await on.ssh(known_hosts=asyncssh.import_known_hosts(f"lease {wrong}"))
        door = await on.door()
        junk = await door.connect("shell", 0, "no key at all")
        junk.close()
        async with await on.ssh() as ssh:
            assert (await ssh.run("echo still there")).stdout == "still there\n"

    within(place / "keys", story)


def test_a_port_is_reached_where_the_lease_has_no_network(place: Path) -> None:
    async def story(on: Reached) -> None:
        door = await on.door("port")
        reader, writer = await asyncio.open_connection(sock=await door.connect("port", 8888, ""))
        writer.write(b"GET /mine HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"of the lease")
        writer.close()
        with pytest.raises(NoWayIn, match="nothing listens on port 8889"):
            await door.connect("port", 8889, "")
        key = (await on.door()).host_key
        again = Doors(on.runtime.inside, on.runtime.count_in, secret=place / "ports/access.key")
        other = await again.through(on.lease_id, "shell")
        assert other.host_key == key, "a lease keeps its key over the agent's restarts"
        again.close()

    within(place / "ports", story)


def test_what_is_connected_ends_with_the_work(place: Path) -> None:
    async def story(on: Reached) -> None:
        ssh = await on.ssh()
        door, ports = await on.door(), await on.door("port")
        shell = await ssh.create_process("sleep 300")
        uid = on.runtime.inside(on.lease_id).uid

        await asyncio.to_thread(on.runtime.kill, on.lease_id)
        await asyncio.wait_for(asyncio.gather(door.ended.wait(), ports.ended.wait()), 20)
        await asyncio.to_thread(ended, on.runtime, on.lease_id)

        assert of_user(uid) == []
        with pytest.raises(NoWayIn):
            await on.door()
        shell.close()
        ssh.abort()

    within(place / "ends", story)


def test_what_a_shell_takes_counts_for_its_lease(place: Path) -> None:
    async def story(on: Reached) -> None:
        made = groups.all_of(str(on.lease_id))
        if not made:
            pytest.skip("no control groups may be written here")
        async with await on.ssh() as ssh:
            said = str((await ssh.run("ulimit -u; ulimit -c; echo $$")).stdout).split()
            assert said[:2] == ["256", "0"]
            held = {pid for each in made for pid in (each / "cgroup.procs").read_text().split()}
            uid = on.runtime.inside(on.lease_id).uid
            assert {str(each.pid) for each in of_user(uid)} <= held

    within(place / "counts", story)


def test_without_confinement_there_are_shells_and_no_ports(place: Path) -> None:
    """A shell is the lease's account, as its work is; a port would be one of the host's."""

    async def story(on: Reached) -> None:
        with pytest.raises(NoWayIn, match="no network of its own"):
            await on.door("port")
        async with await on.ssh() as ssh:
            uid = on.runtime.inside(on.lease_id).uid
            said = str((await ssh.run("id -u; grep CapEff /proc/self/status")).stdout).split()
            assert said == [str(uid), "CapEff:", "0" * 16]
            with pytest.raises(asyncssh.ChannelOpenError):
                await ssh.open_connection("127.0.0.1", 8888)

    within(place / "unconfined", story, confined=False)


def test_nobody_is_let_into_what_is_not_there(place: Path) -> None:
    async def story(on: Reached) -> None:
        with pytest.raises(NoWayIn):
            on.runtime.inside(uuid4())
        door = await on.door("port")
        os.killpg(door.pid, 9)
        await asyncio.wait_for(door.ended.wait(), 10)
        assert not (await on.door("port")).ended.is_set(), "a door that was killed is made anew"

    within(place / "nobody", story)


def test_what_a_door_says_is_no_more_trusted_than_a_tenant(place: Path) -> None:
    async def story(on: Reached) -> None:
        door = await on.door("port")
        for nonsense in (b"[]", b"{", b'{"id": "x"}', json.dumps({"id": 10**9}).encode()):
            door._take({"id": 77}, [])
            try:
                door._take(json.loads(nonsense), [])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue

    within(place / "nonsense", story)
