"""Work begins with a commit or a file that its host fetched: confined, bounded, as its account."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes import egress
from metering.agent.runtimes.confinement import Confinement, Network, find
from metering.agent.runtimes.family import of_user
from metering.agent.runtimes.port import Mounted, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.sources import Source
from metering.agent.runtimes.users import WorkUsers
from tests.git_server.server import FILE, FOLDER, LINK, PROGRAM, SUBMODULE, Repository, here
from tests.metering.agent.hunted import processes_with
from tests.metering.agent.sources import Forge, forge
from tests.metering.agent.workloads import end_all
from tests.metering.agent.works import ROOT, accounts, ended, let_through, program, said, until

pytestmark = [ROOT, pytest.mark.skipif(not here(), reason="git and its server are not installed")]

TOKEN = "token-3f9a0c11-Zz"
LOOKS = """
import json, os, pathlib, sys
here = pathlib.Path(".")
files = {str(each): each.read_text() for each in sorted(here.rglob("*"))
         if each.is_file() and not each.is_symlink()}
links = {str(each): os.readlink(each) for each in here.rglob("*") if each.is_symlink()}
print(json.dumps({"files": files, "links": links, "mine": os.stat(".").st_uid == os.getuid(),
                  "runs": [name for name in files if os.access(name, os.X_OK)],
                  "tmp": os.listdir("/tmp"), "run": os.path.exists("/run/offpeak"),
                  "secrets": os.path.exists("/run/secrets")}))
"""


@dataclass
class Host:
    """A host that lets work reach one forge and nothing else."""

    folder: Path
    forge: Forge
    repository: Repository
    users: WorkUsers
    confinement: Confinement
    runtime: ProcessRuntime

    def source(
        self, ref: str = "main", folder: str = "", *, secret: str = "", value: bytes = b""
    ) -> Source:
        url = f"{self.forge.address}/lab/train.git"
        return Source(url, ref, folder, secret=secret, value=value)

    def start(self, source: Source, code: str = LOOKS) -> WorkSpec:
        wanted = replace(program(code), source=source)
        self.runtime.start(wanted)
        return wanted

    def runs(self, source: Source) -> dict[str, Any]:
        """Return what work finds that begins with a source."""
        wanted = self.start(source)
        work = ended(self.runtime, wanted.lease_id)
        assert work.exit_code == 0, work
        found: dict[str, Any] = json.loads(said(self.folder, wanted))
        self.runtime.forget(wanted.lease_id)
        return found | {"commit": work.commit, "left_out": list(work.left_out)}

    def refuses(self, source: Source) -> str:
        """Return why work does not begin."""
        wanted = self.start(source)
        work = ended(self.runtime, wanted.lease_id)
        assert work.lost and not work.started_ms
        self.runtime.forget(wanted.lease_id)
        return work.detail


@pytest.fixture
def host(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    (work_folder / "lab").mkdir()
    repository = Repository(work_folder / "lab" / "train.git")
    with forge(work_folder, work_folder) as served:
        monkeypatch.setenv("SSL_CERT_FILE", str(served.authority))
        out, why = egress.find(egress.parse_all(served.place), open_=False)
        if out is None:
            pytest.skip(why)
        users, state = accounts(), work_folder / "state"
        confinement, why = find(network="allow", user=users.first, egress=out)
        if confinement is None or confinement.way_out is None:
            pytest.skip(why or "slirp4netns is not installed")
        let_through(state)
        runtime = ProcessRuntime(state, clock=SystemClock(), users=users, confinement=confinement)
        yield Host(state, served, repository, users, confinement, runtime)
        served.held.set()
        end_all(runtime)


def test_work_begins_with_the_files_of_a_commit_and_tells_which_it_was(host: Host) -> None:
    own = host.repository
    inner = own.tree((FILE, "b.txt", own.blob(b"two\r\n")), (PROGRAM, "go", own.blob(b"#!/bin/sh")))
    attributes = own.blob(b"* text eol=lf ident\n*.txt filter=evil\n")
    commit = own.commit(
        own.tree(
            (FILE, ".gitattributes", attributes),
            (FILE, "a.txt", own.blob(b"$Id$")),
            (LINK, "link", own.blob(b"src/b.txt")),
            (FOLDER, "src", inner),
        )
    )
    assert "fetch" in abilities_of(host.runtime)

    found = host.runs(host.source())

    assert found["commit"] == commit and found["left_out"] == []
    assert found["files"] == {
        ".gitattributes": "* text eol=lf ident\n*.txt filter=evil\n",
        "a.txt": "$Id$",
        "src/b.txt": "two\n",
        "src/go": "#!/bin/sh",
    }
    assert found["links"] == {"link": "src/b.txt"} and found["runs"] == ["src/go"]
    assert (found["mine"], found["tmp"], found["run"], found["secrets"]) == (True, [], False, False)


def test_a_branch_a_tag_and_a_commit_are_found_and_a_folder_of_it_alone_comes(host: Host) -> None:
    own = host.repository
    inner = own.tree((FILE, "b.txt", own.blob(b"inner")))
    first = own.commit(own.tree((FOLDER, "src", inner)), "old/branch")
    own.git("update-ref", "refs/tags/v1", first)
    own.of_files(main=b"later")

    for ref in ("old/branch", "v1", first):
        found = host.runs(host.source(ref, "src"))
        assert (found["commit"], found["files"]) == (first, {"b.txt": "inner"})
    assert host.runs(host.source("HEAD"))["files"] == {"main": "later"}


def test_a_commit_that_the_branch_has_left_behind_is_fetched_all_the_same(host: Host) -> None:
    first = host.repository.of_files(a=b"first")
    host.repository.git("config", "uploadpack.allowAnySHA1InWant", "false")
    host.repository.git("config", "uploadpack.allowReachableSHA1InWant", "false")
    tree = host.repository.tree((FILE, "a", host.repository.blob(b"second")))
    made = host.repository.git("commit-tree", "-m", "Next", "-p", first, tree)
    host.repository.git("update-ref", "refs/heads/main", made)

    found = host.runs(host.source(first))

    assert (found["commit"], found["files"]) == (first, {"a": "first"})


def test_what_does_not_come_is_named(host: Host) -> None:
    own = host.repository
    commit = own.of_files(base=b"x")
    pointer = own.blob(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    own.commit(
        own.tree(
            (FILE, "big.bin", pointer),
            (LINK, "out", own.blob(b"../../etc/passwd")),
            (SUBMODULE, "sub", commit),
        )
    )

    found = host.runs(host.source())

    assert found["links"] == {} and list(found["files"]) == ["big.bin"]
    assert found["left_out"] == [
        "sub: a submodule",
        "out: a link that leads out of the folder",
        "the content of 1 files, which Git LFS keeps elsewhere",
    ]


@pytest.mark.parametrize(
    ("name", "kind"), [("..", FOLDER), (".git", FOLDER), ("a\\b", FILE), (".GIT", FILE)]
)
def test_a_tree_with_a_path_that_leads_out_is_refused(host: Host, name: str, kind: str) -> None:
    own = host.repository
    blob = own.blob(b"x")
    own.commit(own.tree((kind, name, own.tree((FILE, "x", blob)) if kind == FOLDER else blob)))

    assert host.refuses(host.source()).startswith("its source: a path of that commit leads out")


def test_a_link_and_a_folder_of_one_name_are_refused(host: Host) -> None:
    own = host.repository
    inner = own.tree((FILE, "passwd", own.blob(b"x")))
    own.commit(own.tree((LINK, "a", own.blob(b"b")), (FOLDER, "a", inner)))

    assert "two of its entries have one path" in host.refuses(host.source())


def test_what_is_not_there_is_said(host: Host) -> None:
    host.repository.of_files(a=b"x")

    assert host.refuses(host.source("gone")) == ("its source: it has no branch, tag or commit gone")
    assert "no branch, tag or commit" in host.refuses(host.source("0" * 40))
    assert host.refuses(host.source("main", "lib")) == "its source: that commit has no folder 'lib'"
    absent = Source(f"{host.forge.address}/lab/other.git", "main")
    assert "not found" in host.refuses(absent)


def test_a_place_that_the_owner_does_not_list_is_not_reached(host: Host) -> None:
    address = host.forge.address.rpartition(":")[0]
    said = host.refuses(Source(f"{address}:1/lab/train.git", "main"))
    assert "is not reached from here: work may not connect to it" in said
    name = host.refuses(Source("https://forge.example/lab/train.git", "main"))
    assert name == "its source: forge.example has no address that this host lets work reach"


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1/lab/train.git/info/refs",
        "https://127.0.0.1:9/lab/train.git/info/refs?service=git-upload-pack",
        "https://169.254.169.254/lab/train.git/info/refs?service=git-upload-pack",
        "file:///etc/passwd",
    ],
)
def test_a_server_that_sends_on_to_the_host_leads_nowhere(host: Host, to: str) -> None:
    host.repository.of_files(a=b"x")
    host.forge.redirects["/lab/train.git/info/refs"] = to

    assert host.refuses(host.source()).startswith("its source: ")
    assert not any("/etc" in path for path, _ in host.forge.asked)


def test_a_token_is_shown_to_its_server_alone_and_the_work_has_it_not(
    host: Host, work_folder: Path
) -> None:
    host.repository.of_files(a=b"private")
    basic = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    host.forge.needs = f"Basic {basic}"

    found = host.runs(host.source(secret="FORGE", value=TOKEN.encode()))

    assert found["files"] == {"a": "private"} and found["secrets"] is False
    assert host.refuses(host.source()).endswith("knows no such repository, or asks who we are")
    wrong = host.refuses(host.source(secret="FORGE", value=b"another-token"))
    assert wrong == "its source: its server does not take the secret that the bid names for it"
    kept = [path for path in host.folder.rglob("*") if path.is_file()]
    assert kept and not any(TOKEN.encode() in path.read_bytes() for path in kept)
    with forge(work_folder, make(work_folder / "other")) as other:
        # Listed by nobody, so it is not even reached; were it, git would ask for another secret.
        host.forge.redirects["/lab/train.git/info/refs"] = (
            f"{other.address}/lab/train.git/info/refs"
        )
        host.refuses(host.source(secret="FORGE", value=TOKEN.encode()))
        assert not any(shown for _, shown in other.asked)


def test_no_command_line_variable_or_open_file_shows_the_token_while_it_is_fetched(
    host: Host,
) -> None:
    host.repository.of_files(a=b"private")
    host.forge.held.clear()
    wanted = host.start(host.source(secret="FORGE", value=TOKEN.encode()))
    until(host.forge.heard.is_set)

    found = processes_with(TOKEN)

    host.forge.held.set()
    ended(host.runtime, wanted.lease_id)
    assert found == []


def test_one_file_comes_that_is_what_its_hash_says(host: Host) -> None:
    content = b"weights"
    host.forge.files["/w/model.bin"] = content
    host.forge.redirects["/to/model.bin"] = f"{host.forge.address}/w/model.bin"
    right = hashlib.sha256(content).hexdigest()

    for path in ("/w/model.bin", "/to/model.bin"):
        found = host.runs(Source(f"{host.forge.address}{path}", sha256=right))
        assert (found["files"], found["commit"]) == ({"model.bin": "weights"}, "")
    wrong = host.refuses(Source(f"{host.forge.address}/w/model.bin", sha256="0" * 64))
    assert wrong == f"its source: it is not what its hash says: its SHA-256 is {right}"
    gone = host.refuses(Source(f"{host.forge.address}/w/gone.bin", sha256=right))
    assert gone == "its source: its server answers 404"
    host.forge.redirects["/plain/model.bin"] = "http://127.0.0.1/model.bin"
    assert "not fetched from" in host.refuses(
        Source(f"{host.forge.address}/plain/model.bin", sha256=right)
    )


def test_too_much_is_refused_before_it_is_written(host: Host) -> None:
    host.repository.of_files(a=os.urandom(2 << 20), b=os.urandom(2 << 20))
    host.forge.files["/big.bin"] = bytes(3 << 20)
    fetcher = host.runtime._fetcher
    assert fetcher is not None
    host.runtime.__dict__["_fetcher"] = replace(fetcher, bytes_max=2 << 20)
    most = "it is larger than the 2 MiB that this host fetches for work"

    assert host.refuses(host.source()) == f"its source: {most}"
    big = Source(f"{host.forge.address}/big.bin", sha256="0" * 64)
    assert host.refuses(big) == f"its source: {most}"


def test_one_that_does_not_come_in_time_is_given_up(host: Host) -> None:
    host.repository.of_files(a=b"x")
    host.forge.held.clear()
    fetcher = host.runtime._fetcher
    assert fetcher is not None
    host.runtime.__dict__["_fetcher"] = replace(fetcher, seconds_max=1)

    assert host.refuses(host.source()) == "its source: it did not come in time"


@pytest.mark.parametrize("how", ["terminate", "kill", "deadline"])
def test_the_end_of_a_lease_ends_what_is_fetched_for_it(host: Host, how: str) -> None:
    host.repository.of_files(a=b"x")
    host.forge.held.clear()
    wanted = host.start(host.source())
    until(host.forge.heard.is_set)
    assert next(iter(host.runtime.works())).coming == "its source is fetched"

    if how == "deadline":
        now_ms = SystemClock().now_ms()
        host.runtime.limit(wanted.lease_id, stop_at_ms=now_ms, kill_at_ms=now_ms)
    else:
        getattr(host.runtime, how)(wanted.lease_id)

    work = ended(host.runtime, wanted.lease_id)
    assert work.lost and not work.started_ms
    assert not of_user(host.users.first.uid)


def test_an_agent_that_starts_anew_finds_it_under_way(host: Host) -> None:
    commit = host.repository.of_files(a=b"x")
    host.forge.held.clear()
    wanted = host.start(host.source())
    until(host.forge.heard.is_set)

    host.runtime = ProcessRuntime(
        host.folder, clock=SystemClock(), users=host.users, confinement=host.confinement
    )
    assert next(iter(host.runtime.works())).coming == "its source is fetched"
    host.forge.held.set()

    work = ended(host.runtime, wanted.lease_id)
    assert (work.exit_code, work.commit) == (0, commit)


def test_a_killed_keeper_takes_it_along(host: Host) -> None:
    host.repository.of_files(a=b"x")
    host.forge.held.clear()
    wanted = host.start(host.source())
    until(host.forge.heard.is_set)

    os.kill(host.runtime._keepers[wanted.lease_id], signal.SIGKILL)

    work = ended(host.runtime, wanted.lease_id)
    assert work.lost and "died at its start" in work.detail
    until(lambda: not of_user(host.users.first.uid))


def test_a_volume_is_not_written_into(host: Host, work_folder: Path) -> None:
    own = host.repository
    own.commit(own.tree((FOLDER, "data", own.tree((FILE, "x", own.blob(b"x"))))))
    volume = make(work_folder / "volume")
    (volume / "kept").write_text("kept")
    wanted = replace(
        program(LOOKS), source=host.source(), volumes=(Mounted(("data",), volume, writable=True),)
    )

    host.runtime.start(wanted)

    assert (
        "a volume of the work lies there: 'data/x'" in ended(host.runtime, wanted.lease_id).detail
    )


def test_a_host_whose_work_has_no_filtered_network_says_so_and_refuses(
    work_folder: Path, host: Host
) -> None:
    users = accounts()
    networks: tuple[Network, ...] = ("none", "host")
    for network in networks:
        confinement, why = find(network=network, user=users.first)
        assert confinement is not None, why
        state = work_folder / network
        let_through(state)
        runtime = ProcessRuntime(state, clock=SystemClock(), users=users, confinement=confinement)

        assert "fetch" not in abilities_of(runtime)
        with pytest.raises(StartFailed, match="fetches no source"):
            runtime.start(replace(program(LOOKS), source=host.source()))


def make(folder: Path) -> Path:
    """Return a folder that was not there."""
    folder.mkdir()
    return folder
