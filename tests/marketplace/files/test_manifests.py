"""A manifest is from somebody else: whoever unpacks one that was read may do as it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.refusal import Refusal
from marketplace.domain.files.manifest import (
    BLOB_BYTES_MAX,
    FILES_MAX,
    FolderTooLarge,
    LinkUnsafe,
    Manifest,
    ManifestUnreadable,
    PathUnsafe,
    need_link,
    need_path,
    read_manifest,
)

A, B = "a" * 64, "b" * 64
ROOT = "/srv/folder"


def read(**fields: Any) -> Manifest:
    said = {"format": "offpeak-folder-1", "blobs": [], "files": [], **fields}
    return read_manifest(json.dumps(said).encode())


def test_a_folder_of_packs_parts_links_and_empty_things_is_read() -> None:
    manifest = read(
        blobs=[[A, BLOB_BYTES_MAX], [B, 10]],
        files=[
            {"path": "model/weights", "parts": [[0, 0, BLOB_BYTES_MAX], [1, 0, 4]]},
            {"path": "run.sh", "parts": [[1, 4, 6]], "executable": True},
            {"path": "empty"},
        ],
        links=[{"path": "model/latest", "to": "../run.sh"}],
        folders=["logs/old"],
    )

    assert (manifest.size_bytes, manifest.entries) == (BLOB_BYTES_MAX + 10, 4)


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", "/", "./a", "a\\b",
        "..\\x", "a\0b", "a\nb", "C:\\x", "\ud800", "x" * 256, "/".join("a" * 70), "é" * 600,
    ],
)  # fmt: skip
def test_a_path_that_leads_out_or_cannot_be_made_is_refused(path: str) -> None:
    with pytest.raises(PathUnsafe):
        need_path(path)
    with pytest.raises((PathUnsafe, ManifestUnreadable)):
        read(files=[{"path": path}])


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("a", "/etc/passwd"), ("a", ".."), ("a", "../x"), ("a/b", "../../x"), ("a", ""),
        ("a/b/c", "../../../x"), ("a", "x/.."), ("a/b", "c/../../../x"), ("a", "x\\y"),
        ("a", "x\0"), ("a", "."), ("a", "x//y"),
    ],
)  # fmt: skip
def test_a_link_that_leads_out_is_refused(path: str, to: str) -> None:
    with pytest.raises(LinkUnsafe):
        read(links=[{"path": path, "to": to}])


NAMES = st.sampled_from(["a", "b", "c", "..", "."])


NESTED = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@settings(max_examples=60)
@given(st.dictionaries(NESTED, NESTED, max_size=5))
def test_no_links_that_are_taken_lead_out_together(links: dict[str, str]) -> None:
    try:
        taken = read(links=[{"path": path, "to": to} for path, to in links.items()]).links
    except Refusal:
        return
    known = {f"{ROOT}/{link.path}": link.to for link in taken}
    for start in known:
        place, left, steps = start.rpartition("/")[0], known[start].split("/"), 0
        while left and steps < 50:
            steps += 1
            name, *left = left
            place = place.rpartition("/")[0] if name == ".." else f"{place}/{name}"
            assert f"{place}/".startswith(f"{ROOT}/")
            if place in known:
                left = [*known[place].split("/"), *left]
                place = place.rpartition("/")[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "offpeak-folder-2"},
        {"blobs": [["A" * 64, 1]], "files": [{"path": "x", "parts": [[0, 0, 1]]}]},
        {"blobs": [[A, 0]]},
        {"blobs": [[A, BLOB_BYTES_MAX + 1]]},
        {"blobs": [[A, 5], [A, 5]], "files": [{"path": "x", "parts": [[0, 0, 5], [1, 0, 5]]}]},
        {"blobs": [[A, 5]]},
        {"files": [{"path": "x", "parts": [[0, 0, 1]]}]},
        {"blobs": [[A, 5]], "files": [{"path": "x", "parts": [[0, 3, 3]]}]},
        {"blobs": [[A, 5]], "files": [{"path": "x", "parts": [[0, -1, 3]]}]},
        {"blobs": [[A, 5]], "files": [{"path": "x", "parts": [[-1, 0, 3]]}]},
        {"blobs": [[A, 5]], "files": [{"path": "x", "parts": [[0, 0, 0]]}]},
        {"files": [{"path": "x"}, {"path": "x"}]},
        {"files": [{"path": "x"}], "links": [{"path": "x", "to": "y"}]},
        {"files": [{"path": "x"}, {"path": "x/y"}]},
        {"links": [{"path": "x", "to": "y"}], "files": [{"path": "x/z"}]},
        {"files": [{"path": "x"}], "folders": ["x"]},
        {"files": [{"path": "x", "mode": 511}]},
        {"files": [{"path": 1}]},
        {"more": 1},
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ManifestUnreadable):
        read(**fields)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(ManifestUnreadable):
        read_manifest(body)


def test_too_many_files_are_refused() -> None:
    with pytest.raises(FolderTooLarge):
        read(files=[{"path": str(number)} for number in range(FILES_MAX + 1)])


def test_a_link_goes_up_as_far_as_its_own_folder_lies_deep() -> None:
    need_link(["a", "b", "c"], "../../x")
    with pytest.raises(LinkUnsafe):
        need_link(["a", "b", "c"], "../../../x")
