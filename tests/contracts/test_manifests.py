"""Server and agent read a manifest alike: what leads out of its folder is refused by both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from ledger.domain.refusal import Refusal
from marketplace.domain.files import manifest as servers
from metering.agent.files import manifest as agents

A, B = "a" * 64, "b" * 64


def said(**changed: Any) -> dict[str, Any]:
    return {
        "format": servers.FORMAT,
        "blobs": [[A, 10], [B, 5]],
        "files": [
            {"path": "src/train.py", "parts": [[0, 0, 10], [1, 2, 3]], "executable": True},
            {"path": "empty"},
        ],
        "links": [{"path": "runs/latest", "to": "../src"}],
        "folders": ["out/deep"],
        **changed,
    }


def file(path: str, parts: Any = ((0, 0, 10), (1, 0, 5))) -> dict[str, Any]:
    return said(files=[{"path": path, "parts": parts}])


def link(path: str, to: Any) -> dict[str, Any]:
    return said(links=[{"path": path, "to": to}])


FINE = [said(), said(links=[], folders=[]), {"format": servers.FORMAT}, link("x", "src/train.py")]
WRONG: list[Any] = [
    [],
    {},
    "text",
    said(format="other"),
    said(more=1),
    said(blobs=[[A, 10], [A, 10]]),
    said(blobs=[["A" * 64, 10], [B, 5]]),
    said(blobs=[[A, 0], [B, 5]]),
    said(blobs=[[A, 2**24], [B, 5]]),
    said(blobs=[[A, 10], [B, 5], ["c" * 64, 5]]),
    *(
        file(path)
        for path in ("", "/etc/x", "..", "../x", "a/../b", "./a", "a//b", "a\\b", "a\nb", "x" * 256)
    ),
    file("/".join("x" * 65)),
    file("a", [[2, 0, 1]]),
    file("a", [[-1, 0, 1]]),
    file("a", [[0, 5, 6], [1, 0, 5]]),
    file("a", [[0, -1, 6], [1, 0, 5]]),
    file("a", [[0, 0, 0], [1, 0, 5]]),
    file("a", [[0, 0]]),
    file("a", [["0", 0, 1]]),
    said(files=[*said()["files"], {"path": "empty"}]),
    said(files=[*said()["files"], {"path": "empty/in"}]),
    said(folders=["empty"]),
    said(links=[{"path": "src", "to": "x"}]),
    *(link("a/b", to) for to in ("../..", "/etc", "x/../y", "a\0b", "", 7)),
    link("../a", "x"),
]


def by_server(body: bytes) -> object:
    return servers.read_manifest(body)


def by_agent(body: bytes) -> object:
    return agents.read_manifest(body, hashlib.sha256(body).hexdigest())


READERS = [pytest.param(by_server, id="server"), pytest.param(by_agent, id="agent")]


@pytest.mark.parametrize("read", READERS)
def test_what_stays_inside_is_read(read: Callable[[bytes], Any]) -> None:
    for each in FINE:
        manifest = read(json.dumps(each).encode())
        assert manifest.size_bytes == sum(
            length for one in each.get("files", ()) for _, _, length in one.get("parts", ())
        )


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_what_leads_out_or_cannot_be_is_refused(
    read: Callable[[bytes], Any], wrong: object
) -> None:
    with pytest.raises((Refusal, agents.FolderWrong)):
        read(json.dumps(wrong).encode())


def test_both_have_the_same_bounds() -> None:
    for name in ("FORMAT", "BLOB_BYTES_MAX", "FILES_MAX", "BLOBS_MAX", "PATH_BYTES_MAX"):
        assert getattr(servers, name) == getattr(agents, name)
    for name in ("NAME_BYTES_MAX", "DEPTH_MAX"):
        assert getattr(servers, name) == getattr(agents, name)
