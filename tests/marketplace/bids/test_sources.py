"""A bid may name what its host fetches: by https, without a token, and the same on all hosts."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import FolderId
from ledger.domain.refusal import Refusal
from marketplace.domain.bids.abilities import needs_of
from marketplace.domain.bids.sources import (
    Source,
    SourceAndInputs,
    SourceUnfit,
    SourceUnpinned,
    check_source,
    pinned,
    read_source,
)
from marketplace.domain.facts.values import Workload
from marketplace.domain.secrets.secret import SecretNameUnfit

COMMIT, HASH = "a" * 40, "b" * 64
WORK = Workload("other", command=("true",), fetch="git+https://git.example/lab/train@main")


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("git+https://git.example/lab/train", Source("https://git.example/lab/train", "HEAD")),
        (
            f"git+https://git.example:8443/lab/train.git@{COMMIT}#src/a",
            Source("https://git.example:8443/lab/train.git", COMMIT, "src/a"),
        ),
        (
            f"https://data.example/w/model.bin#sha256={HASH}",
            Source("https://data.example/w/model.bin", sha256=HASH),
        ),
    ],
)
def test_an_address_is_read(said: str, source: Source) -> None:
    assert read_source(said) == source
    assert source.is_pinned == (COMMIT in said or HASH in said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("git+ssh://git@git.example/lab/train", "by https alone"),
        ("git+http://git.example/lab/train", "by https alone"),
        ("git+file:///srv/train", "by https alone"),
        ("ext::sh -c id", "by https alone"),
        ("s3://lab/train", "by https alone"),
        ("git+https://token@git.example/lab/train", "keep it as a secret"),
        ("git+https://me:token@git.example/lab/train", "keep it as a secret"),
        ("git+https://git.example/lab/train?token=1", "leave it out"),
        (f"https://data.example/a?X-Amz-Signature=1#sha256={HASH}", "leave it out"),
        ("git+https:///lab/train", "no host"),
        ("git+https://git.example/", "no repository"),
        ("git+https://git.example/-upload-pack=x", "no repository"),
        ("git+https://git.example/lab/../../etc", "no repository"),
        ("git+https://git.example/lab/train@-x", "no branch, tag or commit"),
        ("git+https://git.example/lab/train@a..b", "no branch, tag or commit"),
        ("git+https://git.example/lab/train#../x", "no folder"),
        ("git+https://localhost/lab/train", "the lease itself"),
        ("git+https://127.0.0.1/lab/train", "the lease itself"),
        ("git+https://169.254.169.254/latest", "the lease itself"),
        ("git+https://[::1]/lab/train", "names no host"),
        ("git+https://git.example:99999/lab/train", "no address"),
        ("https://data.example/w/model.bin", "needs its hash"),
        ("https://data.example/w/model.bin#sha256=12", "needs its hash"),
        (f"https://data.example/w/#sha256={HASH}", "names no file"),
        ("git+https://git.example/" + "x" * 1_024, "up to 1024 characters"),
    ],
)
def test_what_no_host_can_fetch_is_refused_with_the_reason(said: str, why: str) -> None:
    with pytest.raises(SourceUnfit) as refused:
        read_source(said)
    assert why in str(refused.value.details["reason"])


@given(st.text(max_size=80), st.sampled_from(["", "git+https://git.example/", "https://h/"]))
def test_any_text_is_read_or_refused(text: str, before: str) -> None:
    try:
        source = read_source(before + text)
    except SourceUnfit:
        return
    scheme, _, rest = source.url.partition("//")
    assert scheme == "https:" and "@" not in rest.split("/")[0]
    assert not source.ref.startswith("-")


def test_work_begins_with_a_folder_or_a_source_and_names_secrets_that_can_be_kept() -> None:
    with pytest.raises(SourceAndInputs):
        check_source(replace(WORK, inputs=FolderId(UUID(int=1))), one_host=True)
    with pytest.raises(SourceUnfit):
        check_source(replace(WORK, fetch="", fetch_secret="GIT"), one_host=True)
    with pytest.raises(SecretNameUnfit):
        check_source(replace(WORK, fetch_secret="no name"), one_host=True)
    check_source(replace(WORK, fetch_secret="GIT"), one_host=True)


def test_on_several_hosts_the_commit_is_named() -> None:
    with pytest.raises(SourceUnpinned):
        check_source(WORK, one_host=False)
    check_source(replace(WORK, fetch=f"git+https://git.example/lab/train@{COMMIT}"), one_host=False)


def test_it_needs_a_host_that_fetches_and_one_that_hands_secrets_for_a_token() -> None:
    assert needs_of(WORK) == ("fetch",)
    assert needs_of(replace(WORK, fetch_secret="GIT")) == ("fetch", "secrets")


@pytest.mark.parametrize("ref", ["", "@main", f"@{'c' * 40}"])
def test_a_commit_takes_the_place_of_what_led_to_it(ref: str) -> None:
    address = "git+https://git.example/lab/train"
    assert pinned(f"{address}{ref}#src", COMMIT) == f"{address}@{COMMIT}#src"
    assert pinned(f"{address}{ref}", "") == f"{address}{ref}"
    assert read_source(pinned(f"{address}{ref}", COMMIT)).is_pinned
    file = f"https://data.example/w#sha256={HASH}"
    assert pinned(file, COMMIT) == file


def test_refusals_are_problems_with_words() -> None:
    for kind in (SourceUnfit, SourceAndInputs, SourceUnpinned):
        assert issubclass(kind, Refusal) and kind.__doc__
