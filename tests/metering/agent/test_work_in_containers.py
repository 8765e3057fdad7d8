"""What only work in images shows: its system, its limits, where its image comes from."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes import reading_back
from metering.agent.runtimes.images import Images, Sources
from metering.agent.runtimes.limits import Limits
from metering.agent.runtimes.podman import Podman, find
from metering.agent.runtimes.port import NotYet, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from tests.metering.agent.containers import (
    LIMITS,
    ContainerRuntime,
    Made,
    contained,
    make_image,
)
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.workloads import containers as containers
from tests.metering.agent.workloads import end_all, ended, spec, until
from tests.metering.agent.works import PYTHON, said

CLOCK = SystemClock()


def program(code: str, **environment: str) -> WorkSpec:
    return spec(PYTHON, "-c", code, **environment)


SEES = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
seen = {name: status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid")}
seen["processes"] = [each for each in os.listdir("/proc") if each.isdigit()]
seen["links"] = os.listdir("/sys/class/net")
seen["devices"] = sorted(os.listdir("/dev"))
seen["environment"] = dict(os.environ)
for place in ("/x", "/etc/x", "/usr/x", "/lease/x", "/lease/work/x", "/tmp/x"):
    try:
        open(place, "w").write("x")
        seen[place] = "written"
    except OSError as error:
        seen[place] = error.strerror
open("/dev/stdout", "w").write(json.dumps(seen))
"""


def test_work_sees_its_image_and_nothing_of_the_host(
    containers: ContainerRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFPEAK_AGENT_TOKEN", "secret")
    wanted = program(SEES, MODEL="llama = 7", NVIDIA_VISIBLE_DEVICES="all")
    containers.start(wanted)
    ended(containers, wanted.lease_id)

    seen: dict[str, Any] = json.loads(said(tmp_path, wanted))

    assert int(seen["CapEff"], 16) == int(seen["CapBnd"], 16) == 0
    assert (seen["NoNewPrivs"], seen["Seccomp"]) == ("1", "2")
    assert set(seen["Uid"].split()) == {"0"}
    assert len(seen["processes"]) == 2 and seen["links"] == ["lo"]
    assert {"null", "shm", "urandom"} <= set(seen["devices"])
    assert not {"kmsg", "mem", "vda", "loop0"} & set(seen["devices"])
    assert seen["environment"]["MODEL"] == "llama = 7"
    assert seen["environment"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert "secret" not in seen["environment"].values()
    assert [seen[place] for place in ("/lease/work/x", "/tmp/x")] == ["written"] * 2
    for place in ("/x", "/etc/x", "/usr/x"):
        assert seen[place] == "Read-only file system", place
    assert seen["/lease/x"] != "written"
    (owner,) = {(tmp_path / "leases" / str(wanted.lease_id) / "work" / "x").stat().st_uid}
    assert owner >= 1_879_048_192


def test_an_image_runs_as_the_user_that_it_names_and_may_write_its_folder(
    podman: Podman, tmp_path: Path
) -> None:
    made = make_image(tmp_path / "images" / "made", user="work", environment=("OF=image",))
    runtime = contained(tmp_path, podman, made)
    wanted = spec("sh", "-c", "id -u; echo $OF; echo x > mine; echo ok > /dev/stderr; ls")
    runtime.start(wanted)
    ended(runtime, wanted.lease_id)

    assert said(tmp_path, wanted) == "1000\nimage\nmine\n"
    folder = tmp_path / "leases" / str(wanted.lease_id)
    assert (folder / "stderr.log").read_text() == "ok\n"
    runtime.forget(wanted.lease_id)


def test_its_command_is_what_the_bid_says_to_the_letter(
    containers: ContainerRuntime, tmp_path: Path
) -> None:
    wanted = spec("printf", "%s|", "{}", "{{.ID}}", "a b", "$HOME", "\"'\\", "--name", "")
    containers.start(wanted)
    ended(containers, wanted.lease_id)

    assert said(tmp_path, wanted) == "{}|{{.ID}}|a b|$HOME|\"'\\|--name||"


def test_all_that_it_prints_is_kept_and_nothing_of_podman_with_it(
    containers: ContainerRuntime, tmp_path: Path
) -> None:
    wanted = program("for n in range(30000): print(n)")
    containers.start(wanted)
    ended(containers, wanted.lease_id)

    assert said(tmp_path, wanted).split() == [str(n) for n in range(30000)]


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_its_deadline_holds_with_nobody_but_its_keeper_and_it_is_found_again(
    containers: ContainerRuntime, tmp_path: Path
) -> None:
    wanted, runs = program(STUBBORN), spec("sleep", "600")
    containers.start(wanted)
    containers.start(runs)
    until(lambda: "ready" in said(tmp_path, wanted))
    now_ms = CLOCK.now_ms()
    containers.limit(wanted.lease_id, stop_at_ms=now_ms + 100, kill_at_ms=now_ms + 1_000)
    folder = tmp_path / "leases" / str(wanted.lease_id)

    until((folder / "exit.json").exists)

    end = json.loads((folder / "exit.json").read_text())
    assert (end["exit_code"], end["stopped"]) == (-signal.SIGKILL, True)
    assert CLOCK.at_boot_ns(end["boot_ns"]) >= now_ms + 1_000
    assert said(tmp_path, wanted).split().count("asked") == 1
    again = contained(tmp_path, containers._containers.podman, Made(tmp_path, ""))  # type: ignore[union-attr]
    assert {work.lease_id: work.state for work in again.works()} == {
        wanted.lease_id: "ended",
        runs.lease_id: "running",
    }
    again.kill(runs.lease_id)
    assert ended(again, runs.lease_id).exit_code == -signal.SIGKILL


def test_notice_and_checkpoint_go_through(containers: ContainerRuntime, tmp_path: Path) -> None:
    wanted = program(
        "import os, signal, time\n"
        "def told(*_):\n"
        "    print(open(os.environ['OFFPEAK_NOTICE']).read(), flush=True)\n"
        "    open(os.environ['OFFPEAK_CHECKPOINT'], 'w').write('2026-01-05T12:00:00Z')\n"
        "signal.signal(signal.SIGUSR1, told)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.02)\n"
    )
    containers.start(wanted)
    until(lambda: "ready" in said(tmp_path, wanted))

    assert containers.notify(wanted.lease_id, stop_at_ms=1_767_614_400_250)

    until(lambda: "2026-01-05T12:00:00.250+00:00" in said(tmp_path, wanted))
    until(lambda: containers.works()[0].saved_ms == 1_767_614_400_000)


def test_a_container_whose_keeper_is_killed_ends_and_is_called_lost(
    containers: ContainerRuntime,
) -> None:
    wanted = spec("sleep", "600")
    containers.start(wanted)
    (pid,) = containers.holders()["GPU-a"]

    os.kill(containers._roots[wanted.lease_id]["keeper_pid"], signal.SIGKILL)

    work = ended(containers, wanted.lease_id)
    assert work.lost and work.exit_code is None
    until(lambda: containers.name_of(pid) is None)
    containers.forget(wanted.lease_id)
    podman = containers._containers.podman  # type: ignore[union-attr]
    until(lambda: not podman.call("ps", "--all", "--quiet").stdout.strip())


def test_a_limit_that_is_not_there_stops_the_start(
    containers: ContainerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = spec("sleep", "600")
    containers.start(wanted)
    (pid,) = containers.holders()["GPU-a"]
    ids = containers._ids[wanted.lease_id][0]
    bounds = {"memory_bytes": LIMITS.memory(), "processes": LIMITS.processes}
    bounds |= {"cpu_percent": 0, "disk_bytes": 0}

    reading_back.check(pid, bounds, ids)

    for name, most in {
        "memory_bytes": 1 << 20,
        "processes": 3,
        "cpu_percent": 50,
        "disk_bytes": 1 << 20,
    }.items():
        with pytest.raises(OSError, match="limit"):
            reading_back.check(pid, {**bounds, name: most}, ids)
    with pytest.raises(OSError, match="capabilities"):
        reading_back.check(os.getpid(), bounds, ids)
    monkeypatch.setattr(reading_back, "MOUNTS", Path("/dev/null"))
    with pytest.raises(OSError, match="None"):
        reading_back.check(pid, bounds, ids)


def test_it_takes_no_more_memory_and_processes_than_it_may(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    runtime = contained(tmp_path, podman, image, limits=Limits(processes=20, memory_bytes=64 << 20))
    spreads = program(
        "import os, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 100:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        made += 1\n"
        "except OSError: print(made, flush=True)\n"
    )
    takes = program("held = bytearray(b'x' * (256 << 20)); print('held')")
    for wanted in (spreads, takes):
        runtime.start(wanted)
        ended(runtime, wanted.lease_id)

    assert 10 <= int(said(tmp_path, spreads)) < 20
    assert said(tmp_path, takes) == ""
    end_all(runtime)


def test_its_disk_and_its_processors_are_bounded(
    podman: Podman, image: Made, tmp_path: Path
) -> None:
    limits = Limits(processes=64, memory_bytes=256 << 20, disk_bytes=24 << 20, cpus=1)
    runtime = contained(tmp_path, podman, image, limits=limits)
    enforces = dict(runtime.sandbox.enforces)
    if not enforces["disk"]:
        pytest.skip("no file system can be mounted here")
    assert "read back" in enforces["cpu"] and "read back" in enforces["disk"]
    fills = program(
        "import os\n"
        "wrote = 0\n"
        "try:\n"
        "    with open('big', 'wb', buffering=0) as file:\n"
        "        while wrote < 64 << 20: wrote += file.write(bytes(1 << 16))\n"
        "except OSError: print(wrote, os.listdir('.'), flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    runtime.start(fills)
    until(lambda: said(tmp_path, fills))

    wrote, _, left = said(tmp_path, fills).partition(" ")
    assert 16 << 20 < int(wrote) < 24 << 20 and "big" in left
    (pid,) = runtime.holders()["GPU-a"]
    assert reading_back.cpu_percent(pid) == 100
    end_all(runtime)
    until(lambda: not runtime.works() and not (tmp_path / "leases" / str(fills.lease_id)).exists())
    assert str(fills.lease_id) not in Path("/proc/self/mounts").read_text()


def test_a_container_without_the_disk_that_was_asked_for_is_not_started(
    podman: Podman, image: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metering.agent.runtimes.disks.usable", lambda folder: "no mkfs.ext4")
    limits = Limits(processes=64, memory_bytes=256 << 20, disk_bytes=24 << 20)
    runtime = contained(tmp_path, podman, image, limits=limits)

    assert dict(runtime.sandbox.enforces)["disk"] == ""
    with pytest.raises(StartFailed, match="limit on disk"):
        runtime.start(program("print('ran')"))


# --- where images come from ----------------------------------------------------------------------


def refusal(podman: Podman, sources: Sources, named: str) -> str:
    """Return why an image cannot be had; empty: it can."""
    images = Images(podman, sources)

    def asked() -> str | None:
        try:
            return f"have {images.ready(named).image_id}"
        except NotYet:
            return None
        except StartFailed as failed:
            return str(failed)

    return str(until(asked)).partition("cannot be run: ")[2]


def test_an_image_that_is_not_here_is_refused_with_the_reason(podman: Podman, image: Made) -> None:
    sources = Sources(folder=image.folder.parent, registries=("127.0.0.1:9",))
    other = f"sha256:{'0' * 64}"

    assert refusal(podman, sources, image.named) == ""
    assert refusal(podman, sources, f"a@{other}") == "this host has no image with this digest"
    assert "evil.example is none of the registries" in refusal(
        podman, sources, f"evil.example/a@{other}"
    )
    assert "registry cannot be reached" in refusal(podman, sources, f"127.0.0.1:9/a@{other}")


def test_an_image_that_was_changed_is_refused(podman: Podman, tmp_path: Path) -> None:
    made = make_image(tmp_path / "images" / "made", files={"mark": b"changed"})
    layer = json.loads((made.folder / "manifest.json").read_text())["layers"][0]["digest"]
    path = made.folder / layer[7:]
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(1024), mtime=1))

    assert "not what its digest says" in refusal(
        podman, Sources(folder=made.folder.parent), made.named
    )


def test_an_image_that_grows_beyond_its_bound_is_refused(podman: Podman, tmp_path: Path) -> None:
    made = make_image(tmp_path / "images" / "made", files={"big": bytes(16 << 20)})
    sources = Sources(folder=made.folder.parent, bytes_max=4 << 20)

    assert "more than the 4 MiB" in refusal(podman, sources, made.named)
    assert podman.call("image", "exists", made.digest[7:]).returncode == 1


def test_an_oci_archive_is_found_by_its_digest(podman: Podman, image: Made, tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")  # tests/install-tools.sh brings it
    archive, folder = tmp_path / "image.tar", tmp_path / "images"
    folder.mkdir()
    copy(image.folder, f"oci-archive:{archive}")
    archive.rename(folder / "image.tar")

    assert refusal(podman, Sources(folder=folder), image.named) == ""


def copy(folder: Path, target: str, *options: str, home: Path | None = None) -> None:
    if target.startswith("dir:"):
        Path(target[4:]).parent.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home or folder)}
    if home is not None:
        environment["GNUPGHOME"] = str(home)
    subprocess.run(
        ["skopeo", "copy", "--insecure-policy", *options, f"dir:{folder}", target],
        check=True,
        capture_output=True,
        env=environment,
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a GnuPG home with two keys; their public halves lie beside."""
    if shutil.which("gpg") is None or shutil.which("skopeo") is None:
        pytest.skip("gpg or skopeo is not installed")  # tests/install-tools.sh brings it
    home = tmp_path_factory.mktemp("k")
    home.chmod(0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", ""]
    for name in ("owner", "other"):
        subprocess.run([*gpg, "--quick-gen-key", f"{name}@example.com", "ed25519"], check=True)
        public = [*gpg, "--export", "--output", str(home / f"{name}.gpg"), f"{name}@example.com"]
        subprocess.run(public, check=True)
    yield home
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)


def test_only_an_image_that_is_signed_by_the_right_key_meets_the_policy(
    podman: Podman, image: Made, keys: Path, tmp_path: Path
) -> None:
    reference = "registry.example/tests/image:1"
    policy = tmp_path / "policy.json"
    asks = {
        "type": "signedBy",
        "keyType": "GPGKeys",
        "keyPath": str(keys / "owner.gpg"),
        "signedIdentity": {"type": "exactReference", "dockerReference": reference},
    }
    policy.write_text(
        json.dumps({"default": [{"type": "reject"}], "transports": {"dir": {"": [asks]}}})
    )
    for name in ("owner", "other"):
        options = ["--sign-by", f"{name}@example.com", "--sign-identity", reference]
        copy(image.folder, f"dir:{tmp_path / name / 'image'}", *options, home=keys)
    sources = Sources(folder=tmp_path / "owner", policy=policy)

    assert refusal(podman, sources, image.named) == ""
    # A policy that changed is asked again: what was fetched by another says nothing.
    policy.write_text(policy.read_text() + "\n")
    assert "a key that this host's owner trusts" in refusal(
        podman, replace(sources, folder=tmp_path / "other"), image.named
    )
    assert "it is not signed" in refusal(
        podman, replace(sources, folder=image.folder.parent), image.named
    )


# --- hosts that run one kind of work, or both ----------------------------------------------------


def test_work_goes_where_its_image_says_and_is_refused_where_that_is_not_run(
    containers: ContainerRuntime, image: Made, tmp_path: Path
) -> None:
    plain, boxed = (
        spec("sh", "-c", "test -e /etc/hostname && echo host"),
        spec("cat", "/etc/os-release"),
    )
    ProcessRuntime.start(containers, plain)
    containers.start(boxed)
    for wanted in (plain, boxed):
        ended(containers, wanted.lease_id)

    assert said(tmp_path, plain) == "host\n"
    assert said(tmp_path, boxed) == "ID=made\n"
    images_only = ContainerRuntime(tmp_path / "b", clock=CLOCK, bare=False)
    assert not images_only.trusts_work and "images-only" in abilities_of(images_only)
    assert "podman" not in abilities_of(images_only) and "podman" in abilities_of(containers)
    assert "images-only" not in abilities_of(containers)
    with pytest.raises(StartFailed, match="images only"):
        ProcessRuntime.start(images_only, spec("true"))
    with pytest.raises(StartFailed, match="no images"):
        ProcessRuntime.start(images_only, replace(spec("true"), image=image.named))


def test_a_variable_of_several_lines_is_refused_by_its_name(containers: ContainerRuntime) -> None:
    with pytest.raises(StartFailed, match="one line: KEY"):
        containers.start(spec("true", KEY="a\nb"))


def test_podman_is_not_used_without_root(tmp_path: Path) -> None:
    assert find(tmp_path, uid=1000)[0] is None
