"""Folders from a git repository or a bucket: fetched by whoever asks, and nothing of it is run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

from marketplace.sdk import from_git, from_s3, sources
from marketplace.sdk.client import Client
from marketplace.sdk.printing import Printer
from marketplace.sdk.problems import Problem
from marketplace.sdk.session import Session
from marketplace.sdk.spoken import NotUnderstood
from tests.git_server.server import (
    FILE,
    FOLDER,
    LINK,
    PROGRAM,
    SUBMODULE,
    Repository,
    here,
    serving,
)
from tests.s3_teeth.server import SECRET, S3Teeth

needs_git = pytest.mark.skipif(not here(), reason="needs git and git http-backend")


class Site:
    """A server with one repository."""

    def __init__(self, root: Path, url: str, asked: list[str]) -> None:
        self.repository = Repository(root / "train.git")
        self.url, self.asked = f"git+{url}/train.git", asked
        self._into = root / "here"

    def fetch(self, after: str = "") -> from_git.Fetched:
        at = self._into / str(len(list(self._into.iterdir())) if self._into.exists() else 0)
        at.mkdir(parents=True)
        return from_git.fetch(from_git.read(self.url + after), at)

    def refused(self, after: str = "") -> str:
        with pytest.raises(Problem) as refused:
            self.fetch(after)
        return str(refused.value.code)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path) as (url, asked):
        yield Site(tmp_path, url, asked)


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(root)): each.read_bytes()
        for each in sorted(root.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


@needs_git
def test_a_branch_a_tag_and_a_commit_are_fetched_and_their_commit_is_told(site: Site) -> None:
    made = site.repository
    first = made.of_files(**{"a.py": b"one"})
    made.git("tag", "-a", "-m", "the first", "v1", first)
    second = made.of_files(**{"a.py": b"two"})

    for after, commit, content in (
        ("", second, b"two"), ("@main", second, b"two"), ("@v1", first, b"one"),
        (f"@{first}", first, b"one"),
    ):  # fmt: skip
        found = site.fetch(after)
        assert files_of(found.root) == {"a.py": content}
        assert found.origin == f"127.0.0.1/train.git@{commit}"
        assert found.left_out == []


@needs_git
def test_a_folder_of_a_commit_keeps_programs_and_links(site: Site) -> None:
    made = site.repository
    inner = made.tree(
        (LINK, "latest", made.blob(b"runs/7")), (PROGRAM, "run.sh", made.blob(b"#!/bin/sh\n"))
    )
    commit = made.commit(made.tree((FILE, "README", made.blob(b"x")), (FOLDER, "src", inner)))

    found = site.fetch("@main#src")

    assert files_of(found.root) == {"run.sh": b"#!/bin/sh\n"}
    assert os.access(found.root / "run.sh", os.X_OK)
    assert os.readlink(found.root / "latest") == "runs/7"
    assert found.origin.endswith(f"@{commit}#src")
    assert site.refused("#none") == "folder-unknown"


@needs_git
def test_what_is_not_there_is_said(site: Site) -> None:
    site.repository.of_files(a=b"x")

    assert site.refused("@none") == "git-failed"
    assert site.refused(f"@{'0' * 39}1") == "commit-unknown"


@needs_git
def test_a_tags_own_id_is_no_commit(site: Site) -> None:
    commit = site.repository.of_files(a=b"x")
    site.repository.git("tag", "-a", "-m", "the first", "v1", commit)

    assert site.refused("@" + site.repository.git("rev-parse", "v1")) == "commit-unknown"


@needs_git
def test_submodules_lfs_and_links_outwards_are_left_out_and_named(site: Site) -> None:
    made = site.repository
    pointer = from_git.POINTER + b"oid sha256:00\nsize 5\n"
    modules = b'[submodule "x"]\n\tpath = x\n\turl = file:///etc\n'
    made.commit(
        made.tree(
            (FILE, ".gitattributes", made.blob(b"*.bin filter=lfs\n")),
            (FILE, ".gitmodules", made.blob(modules)),
            (LINK, "etc", made.blob(b"../../../etc")),
            (FILE, "model.bin", made.blob(pointer)),
            (LINK, "passwd", made.blob(b"/etc/passwd")),
            (SUBMODULE, "x", "1" * 40),
        )
    )

    found = site.fetch()

    assert set(files_of(found.root)) == {".gitattributes", ".gitmodules", "model.bin"}
    assert not any(each.is_symlink() for each in found.root.iterdir())
    assert found.left_out == [
        ("x", "a submodule"),
        ("etc", "a link that leads out of the folder"),
        ("passwd", "a link that leads out of the folder"),
        ("the content of 1 files", "kept by Git LFS elsewhere"),
    ]


@needs_git
@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT", "a\\b", "a\nb", "git~1"])
def test_a_tree_that_leads_out_of_its_folder_is_refused(site: Site, name: str) -> None:
    made = site.repository
    inner = made.tree((FILE, "x", made.blob(b"mine now")))
    made.commit(made.tree((FOLDER, name, inner)))

    assert site.refused() == "path-unsafe"
    assert not (site.repository.at.parent / "here" / "x").exists()


@needs_git
def test_nothing_is_written_through_a_link_of_the_same_name(site: Site, tmp_path: Path) -> None:
    made = site.repository
    outside = tmp_path / "outside"
    outside.mkdir()
    inner = made.tree((FILE, "x", made.blob(b"mine now")))
    made.commit(made.tree((LINK, "a", made.blob(str(outside).encode())), (FOLDER, "a", inner)))
    found = site.fetch()
    assert files_of(found.root) == {"a/x": b"mine now"}  # the link leads out, and is left out
    made.commit(made.tree((LINK, "a", made.blob(b"b")), (FOLDER, "a", inner)))

    assert site.refused() == "path-unsafe"
    assert list(outside.iterdir()) == []


@needs_git
def test_no_hook_filter_or_setting_of_a_repository_or_a_person_runs(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ran = site.repository, tmp_path / "ran"
    made.commit(
        made.tree((FILE, ".gitattributes", made.blob(b"* filter=evil eol=crlf\n")),
                  (FILE, "a", made.blob(b"1\n2\n")))
    )  # fmt: skip
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    settings = tmp_path / "gitconfig"
    settings.write_text(
        f'[filter "evil"]\n\tsmudge = {hook}\n\tprocess = {hook}\n'
        f"[core]\n\thooksPath = {tmp_path}\n\tfsmonitor = {hook}\n\tautocrlf = true\n"
        "[fetch]\n\trecurseSubmodules = true\n"
    )
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (tmp_path / name).symlink_to(hook)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))

    found = site.fetch()

    assert files_of(found.root)["a"] == b"1\n2\n"
    assert not ran.exists()


@needs_git
def test_a_commit_with_too_much_is_refused_before_it_is_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.repository.of_files(a=b"x" * 600, b=b"y" * 600)
    monkeypatch.setattr(from_git, "BYTES_MAX", 1_000)
    assert site.refused() == "folder-too-large"
    monkeypatch.setattr(from_git, "FILES_MAX", 1)
    monkeypatch.setattr(from_git, "BYTES_MAX", 10_000)
    assert site.refused() == "folder-too-large"


@pytest.mark.parametrize(
    "said",
    [
        "git+ext::sh -c touch% /tmp/x", "git+file:///etc", "git+/etc", "git+fd::3", "git+https://",
        "git+http://git.example/x", "git+git://git.example/x", "git+https://h/x?token=1",
        "git+https://me:secret@h/x", "git+https://token@h/x", "git+ssh://-oProxyCommand=x/y",
        "git+ssh://-x@h/y", "git+https://h/x@--upload-pack=x", "git+https://h/x@a..b",
        "git+https://h/x#../y", "git+https://h/x#.git", "git+https://h/-x", "git+https://h/x@",
    ],
)  # fmt: skip
def test_an_address_that_leads_elsewhere_is_refused_without_its_secret(said: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        from_git.read(said)

    assert "secret" not in str(refused.value)


def test_addresses_are_read() -> None:
    wanted = from_git.read("git+ssh://git@h.example/o/r.git@feature/x#a/b")

    assert wanted == from_git.Wanted("ssh://git@h.example/o/r.git", "feature/x", "a/b")
    assert from_git.read("git+https://h.example/o/r").ref == "HEAD"


@needs_git
def test_a_server_that_sends_git_elsewhere_is_not_followed_by_another_way(
    site: Site, tmp_path: Path
) -> None:
    """Rewritten by settings, as a redirect would: only the way that was said is spoken."""
    wanted = from_git.Wanted("https://127.0.0.1:1/x", "HEAD", "")
    (tmp_path / "c").write_text('[url "ext::touch /tmp/offpeak-no "]\n\tinsteadOf = https://127\n')
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Problem, match="not allowed"):
        patch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "c"))
        (tmp_path / "into").mkdir()
        from_git.fetch(wanted, tmp_path / "into")


# --- buckets -------------------------------------------------------------------------------------


class Bucket:
    """A bucket with what is put into it."""

    def __init__(self, server: S3Teeth) -> None:
        self.server = server
        self.client: Any = boto3.client("s3", endpoint_url=server.url, region_name="us-east-1",
                                        aws_access_key_id=server.key_id,
                                        aws_secret_access_key=SECRET)  # fmt: skip
        for each in self.client.list_objects_v2(Bucket=server.bucket).get("Contents", ()):
            self.client.delete_object(Bucket=server.bucket, Key=each["Key"])  # an earlier test's

    def put(self, **objects: bytes) -> None:
        for key, data in objects.items():
            self.client.put_object(Bucket=self.server.bucket, Key=key, Body=data)

    def fetch(self, into: Path, prefix: str = "") -> from_git.Fetched:
        into.mkdir(exist_ok=True)
        return from_s3.fetch(from_s3.read(f"s3://{self.server.bucket}/{prefix}"), into)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    server = S3Teeth()
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with ExitStack() as ended_last:
        ended_last.callback(server.stop)
        found = Bucket(server)
        ended_last.callback(found.client.close)
        yield found


def test_all_below_a_prefix_comes_and_its_siblings_do_not(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"data/a.bin": b"a" * 3_000_000, "data/b/c": b"", "data/": b"", "data2/x": b"x"})

    found = bucket.fetch(tmp_path / "into", "data/")

    assert files_of(found.root) == {"a.bin": b"a" * 3_000_000, "b/c": b""}
    assert found.origin == f"s3://{bucket.server.bucket}/data"


def test_one_object_comes_by_its_key(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"data/a.bin": b"a", "data/a.bin2": b"b"})

    assert files_of(bucket.fetch(tmp_path / "into", "data/a.bin").root) == {"a.bin": b"a"}


@pytest.mark.parametrize("key", ["d/../x", "d//x", "d/a\\b", "d/.git/config", "d/./x"])
def test_a_key_that_leads_out_of_the_folder_is_refused(
    bucket: Bucket, tmp_path: Path, key: str
) -> None:
    bucket.put(**{key: b"x"})

    with pytest.raises(Problem, match="no path"):
        bucket.fetch(tmp_path / "into", "d")


def test_a_key_that_is_a_file_and_a_folder_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(**{"d/a": b"x", "d/a/b": b"y"})

    with pytest.raises(Problem, match="one path"):
        bucket.fetch(tmp_path / "into", "d")


def test_an_object_that_changes_meanwhile_ends_it(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put(**{"d/a": b"old"})
    listed = from_s3._listed

    def changed(client: Any, wanted: from_s3.Wanted) -> Iterator[from_s3._Found]:
        found = list(listed(client, wanted))
        bucket.put(**{"d/a": b"new"})
        yield from found

    monkeypatch.setattr(from_s3, "_listed", changed)
    with pytest.raises(Problem, match="changed while"):
        bucket.fetch(tmp_path / "into", "d")


def test_what_a_bucket_refuses_is_said_without_the_keys(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Problem, match="nothing at"):
        bucket.fetch(tmp_path / "into", "none")
    with pytest.raises(Problem, match="NoSuchBucket") as refused:
        from_s3.fetch(from_s3.read("s3://not-there/x"), tmp_path / "into")
    assert SECRET not in str(refused.value)
    bucket.server.trouble = ["503 Slow Down"]
    with pytest.raises(Problem, match="SlowDown"):
        bucket.fetch(tmp_path / "into", "x")


@pytest.mark.parametrize("said", ["s3://", "s3://A/x", "s3:///x", "s3://../x"])
def test_what_is_no_bucket_is_refused(said: str) -> None:
    with pytest.raises(NotUnderstood):
        from_s3.read(said)


# --- from either, on to the market ---------------------------------------------------------------


@needs_git
def test_a_source_is_named_as_the_folders_title_and_gone_afterwards(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = site.repository.of_files(a=b"x")
    session = Session(Client("http://m.example", "t"), Printer(as_json=False), "http://m.example")

    with sources.at_hand(session, site.url) as found:
        assert files_of(found.root) == {"a": b"x"}
        assert sources.title_of(found) == f"127.0.0.1/train.git@{commit}"

    assert not found.root.exists()
    assert commit in capsys.readouterr().err
    assert len(sources.title_of(from_git.Fetched(Path(), "h/" + "x" * 200))) == 120
    assert sources.title_of(from_git.Fetched(Path("x"), "")) == ""
