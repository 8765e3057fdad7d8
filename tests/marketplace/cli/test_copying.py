"""`offpeak cp` to and from volumes and what leases left, against a market in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketplace.domain.files.manifest import read_manifest
from marketplace.sdk import copying, files, parts
from marketplace.sdk.client import Client
from marketplace.sdk.printing import Printer
from marketplace.sdk.problems import Problem
from marketplace.sdk.session import Session
from marketplace.sdk.spoken import NotUnderstood
from marketplace.sdk.transfers import Transfers

SERVER = "http://market.example"
LEASE = "00000000-0000-7000-8000-00000000c0b1"  # in names of tests, which are the same everywhere
HOST, FOLDER = str(uuid4()), str(uuid4())


class Holds:
    """A market with one volume, `data`, and one lease that ended and left a folder."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.versions: list[str] = []
        self.sent: list[str] = []
        self.lease: dict[str, Any] = {
            "id": LEASE, "state": "closed", "outputs_failed": [], "output_folders": []
        }  # fmt: skip
        self.transport = httpx.MockTransport(self._answer)
        client = Client(SERVER, "offp_user_x", transport=self.transport, sleep=lambda _: None)
        self.session = Session(client, Printer(as_json=True), SERVER)

    def keep(self, tree: dict[str, bytes], **more: Any) -> str:
        """Keep a manifest of files; return its name."""
        blobs = sorted({data for data in tree.values() if data})
        said = {
            "format": "offpeak-folder-1",
            "blobs": [[_name(each), len(each)] for each in blobs],
            "files": [
                {"path": path, "parts": [[blobs.index(data), 0, len(data)]] if data else []}
                for path, data in tree.items()
            ],
            **more,
        }
        body = json.dumps(said).encode()
        self.blobs |= {_name(each): each for each in (body, *blobs)}
        return _name(body)

    def newest(self) -> dict[str, bytes]:
        """Return the files of the volume."""
        name = self.versions[-1]
        read_manifest(self.blobs[name])  # as the market reads it
        return self.tree(json.loads(self.blobs[name]))

    def tree(self, manifest: Any) -> dict[str, bytes]:
        names = [sha256 for sha256, _ in manifest["blobs"]]
        return {
            file["path"]: b"".join(
                self.blobs[names[blob]][since : since + size] for blob, since, size in file["parts"]
            )
            for file in manifest["files"]
        }

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1/")
        if path.startswith("/blobs/"):
            return self._blob(request, path.removeprefix("/blobs/"))
        body = json.loads(request.content) if request.content else {}
        match request.method, path.split("/"):
            case "GET", ["volumes", "data"]:
                manifest = self.versions[-1] if self.versions else ""
                return _json({"manifest": manifest, "version": len(self.versions)})
            case "GET", ["leases", lease] if lease == LEASE:
                return _json(self.lease)
            case "GET", ["leases", lease, "access"] if lease == LEASE:
                return _json({"hosts": [{"runs": False}]})
            case "GET", ["folders", folder]:
                return _json({"id": folder, "manifest": self.left, "files": 1, "size_bytes": 1})
            case "POST", [_, _, "links"]:
                return _json({"links": {each: _link(each) for each in body["blobs"]}})
            case "POST", ["volumes", "data", "missing"]:
                lacking = [each for each in body["blobs"] if each not in self.blobs]
                return _json({"links": {each: _link(each) for each in lacking}})
            case "POST", ["volumes", "data", "versions"]:
                assert body["base"] == len(self.versions)
                self.versions.append(body["manifest"])
                return _json({"id": LEASE, "version": len(self.versions), "position": 1}, 201)
        return _json({"code": "unknown", "detail": "There is no such thing."}, 404)

    def _blob(self, request: httpx.Request, name: str) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=self.blobs[name])
        assert _name(request.content) == name
        self.blobs[name] = request.content
        self.sent.append(name)
        return httpx.Response(200)

    left = ""

    def leave(self, tree: dict[str, bytes]) -> None:
        """Let the lease have left a folder."""
        self.left = self.keep(tree)
        self.lease["output_folders"] = [{"host_id": HOST, "folder_id": FOLDER}]


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _link(name: str) -> dict[str, Any]:
    return {"url": f"/blobs/{name}", "headers": {}}


def _json(said: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=said)


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holds]:
    market = Holds()

    def transfers(session: Session) -> Transfers:
        return Transfers(session.client, SERVER, transport=market.transport, sleep=lambda _: None)

    monkeypatch.setattr(files, "transfers_of", transfers)
    yield market


def cp(market: Holds, source: object, target: object, *, recursive: bool = False) -> None:
    copying.copy(market.session, str(source), str(target), recursive=recursive)


def here(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


HELD = {"a.txt": b"a", "raw/b.bin": b"bb", "raw/deep/c": b"ccc", "empty": b""}


@pytest.fixture
def held(market: Holds) -> Holds:
    market.versions.append(market.keep(HELD, folders=["hollow"]))
    return market


def test_a_file_and_a_folder_come_out_of_a_volume_as_cp_would_put_them(
    held: Holds, tmp_path: Path
) -> None:
    cp(held, "volume:data/raw/b.bin", tmp_path)
    cp(held, "volume:data/a.txt", tmp_path / "named")
    cp(held, "volume:data/raw", tmp_path, recursive=True)
    cp(held, "volume:data/raw", tmp_path / "new", recursive=True)
    cp(held, "volume:data", tmp_path / "all", recursive=True)

    assert here(tmp_path / "all") == HELD and (tmp_path / "all" / "hollow").is_dir()
    assert here(tmp_path / "new") == here(tmp_path / "raw") == {"b.bin": b"bb", "deep/c": b"ccc"}
    assert (tmp_path / "b.bin").read_bytes() == b"bb"
    assert (tmp_path / "named").read_bytes() == b"a"
    assert not list(tmp_path.glob(".offpeak*"))


def test_what_goes_into_a_volume_is_its_next_version_and_the_rest_stays(
    held: Holds, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "d").write_bytes(b"dddd")
    (tmp_path / "a.txt").write_bytes(b"another")

    cp(held, tmp_path / "a.txt", "volume:data")
    cp(held, tmp_path / "a.txt", "volume:data/raw/other.txt")
    cp(held, tmp_path / "new", "volume:data/raw", recursive=True)
    cp(held, tmp_path / "new", "volume:data/hollow", recursive=True)
    cp(held, tmp_path / "new", "volume:data/newest/one", recursive=True)

    assert held.newest() == {
        **HELD,
        "a.txt": b"another",
        "raw/other.txt": b"another",
        "raw/new/d": b"dddd",
        "hollow/new/d": b"dddd",
        "newest/one/d": b"dddd",
    }
    assert len(held.versions) == 6
    assert _name(b"bb") not in held.sent, "what stays is not sent"


def test_an_empty_volume_takes_its_first_files(market: Holds, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")

    cp(market, tmp_path / "a", "volume:data/x/y")

    assert market.newest() == {"x/y": b"1"}


@pytest.mark.parametrize(
    ("source", "target", "status", "said"),
    [
        ("volume:data/absent", "HERE", 404, "There is no absent in that volume"),
        ("HERE/a", "volume:data/raw/b.bin/x", 409, "raw/b.bin is a file there"),
        ("HERE/a", "volume:other/x", 404, "no such thing"),
    ],
)
def test_what_the_volume_does_not_allow_is_refused(
    source: str, target: str, status: int, said: str, held: Holds, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"1")

    with pytest.raises(Problem, match=said) as refused:
        cp(held, source.replace("HERE", str(tmp_path)), target.replace("HERE", str(tmp_path)))
    assert refused.value.status == status
    assert len(held.versions) == 1


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("volume:data/raw", "HERE", "is a folder: say -r"),
        ("volume:data/../x", "HERE", "is no path in a volume"),
        ("volume:", "HERE", "names no volume"),
        ("lease:mine/x", "HERE", "is no lease"),
        ("HERE", "volume:data", "is a folder: say -r"),
        ("HERE/absent", "volume:data", "There is no"),
        ("HERE", "HERE", "both are"),
        ("volume:data/a.txt", f"lease:{LEASE}/x", "neither is"),
        ("volume:data/a.txt", "HERE/no/where", "There is no folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    source: str, target: str, said: str, held: Holds, tmp_path: Path
) -> None:
    with pytest.raises(NotUnderstood, match=said):
        cp(held, source.replace("HERE", str(tmp_path)), target.replace("HERE", str(tmp_path)))


# --- leases that ended ------------------------------------------------------------------------


def test_what_a_lease_left_is_copied_from_what_is_kept(market: Holds, tmp_path: Path) -> None:
    market.leave({"out/model": b"m", "out/deep/log": b"l"})

    cp(market, f"lease:{LEASE}/out/model", tmp_path / "model")
    cp(market, f"lease:{LEASE}/out", tmp_path / "out", recursive=True)
    files.of_lease(market.session, LEASE, tmp_path / "all")  # type: ignore[arg-type]

    assert (tmp_path / "model").read_bytes() == b"m"
    assert here(tmp_path / "out") == {"model": b"m", "deep/log": b"l"}
    assert here(tmp_path / "all") == {"out/model": b"m", "out/deep/log": b"l"}


def test_of_several_hosts_each_has_a_folder_of_its_own(market: Holds, tmp_path: Path) -> None:
    market.leave({"a": b"1"})
    other = str(uuid4())
    market.lease["output_folders"].append({"host_id": other, "folder_id": str(uuid4())})

    files.of_lease(market.session, LEASE, tmp_path / "all")  # type: ignore[arg-type]

    assert here(tmp_path / "all") == {f"{HOST}/a": b"1", f"{other}/a": b"1"}
    with pytest.raises(NotUnderstood, match="ran on several hosts: say --host"):
        cp(market, f"lease:{LEASE}/a", tmp_path)


def test_a_lease_of_which_nothing_is_kept_says_why(market: Holds, tmp_path: Path) -> None:
    market.lease["outputs_failed"] = [{"reason": "nothing met out/"}]
    with pytest.raises(Problem, match=r"Nothing of that lease is kept\. nothing met out/"):
        cp(market, f"lease:{LEASE}/out", tmp_path)
    market.lease["state"] = "active"
    with pytest.raises(Problem, match="goes on"):
        files.of_lease(market.session, LEASE, tmp_path / "x")  # type: ignore[arg-type]
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(Problem, match="does not run"):
        cp(market, tmp_path / "a", f"lease:{LEASE}/a")


# --- parts of folders -------------------------------------------------------------------------

paths = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(paths, st.binary(max_size=4), max_size=6).map(
    lambda tree: {
        name: data
        for name, data in tree.items()
        if not any(other.startswith(f"{name}/") for other in tree)
    }
)


@given(old=trees, new=trees, at=st.one_of(st.just(""), paths))
def test_a_folder_with_a_part_in_it_is_that_part_there_and_the_rest(
    old: dict[str, bytes], new: dict[str, bytes], at: str
) -> None:
    held = Holds()
    whole = json.loads(held.blobs[held.keep(old, folders=[], links=[])])
    part = json.loads(held.blobs[held.keep(new, folders=[], links=[])])
    moved = {f"{at}/{name}".lstrip("/"): data for name, data in new.items()}
    wanted = {**old, **moved}
    fits = not any(other.startswith(f"{name}/") for name in wanted for other in wanted)

    try:
        made = parts.with_part(whole, at, part)
    except parts.InTheWay:
        assert not fits
        return

    assert fits and held.tree(made) == wanted
    body = parts.written(made)
    read_manifest(body)
    if moved:
        taken = parts.part_of(made, at)
        inside = {
            name[len(at) + 1 :] if at else name: data
            for name, data in wanted.items()
            if not at or name.startswith(f"{at}/")
        }
        assert held.tree(taken) == inside
