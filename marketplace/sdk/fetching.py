"""What a host fetches for work, in the words of the commands that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .spoken import NotUnderstood

Fetch = Annotated[
    str,
    typer.Option(
        "--fetch",
        help="what the host fetches: git+https://host/path@ref#folder, "
        "or https://host/file#sha256=…",
    ),
]
FetchSecret = Annotated[
    str, typer.Option("--fetch-secret", help="the secret that the host shows where it fetches")
]
FetchThere = Annotated[
    bool,
    typer.Option("--fetch-there", help="the host fetches FOLDER, instead of this machine"),
]


def fetched_there(folder: str | None, *, there: bool, secret: str) -> dict[str, str]:
    """Return what of a workload asks the host to fetch a folder; nothing where it is not to.

    Raises: NotUnderstood.
    """
    if not there:
        if secret:
            raise NotUnderstood("--fetch-secret goes with --fetch-there.")
        return {}
    if folder is None or not folder.startswith(("git+", "https://")):
        raise NotUnderstood(
            "--fetch-there goes with an address: git+https://host/path@ref#folder, "
            "or https://host/file#sha256=…. A bucket is fetched by this machine, without it."
        )
    return {"fetch": folder} | ({"fetch_secret": secret} if secret else {})


def told(attempt: Mapping[str, Any]) -> list[str]:
    """Return sentences on what an attempt began with."""
    sentences = [f"It runs commit {attempt['commit']}."] if attempt.get("commit") else []
    return sentences + [f"Left out: {each}" for each in attempt.get("left_out", ())]
