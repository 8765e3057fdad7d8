"""`offpeak modules`: what work may import where the client is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import checkpoint, heartbeat
from .session import session_of
from .spoken import NotUnderstood

STANDALONE = (heartbeat, checkpoint)
"""Modules with the standard library alone."""


def modules(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="the folder that `offpeak run` brings")],
) -> None:
    """Put offpeak.heartbeat and offpeak.checkpoint into a folder of work that has no client."""
    if not folder.is_dir():
        raise NotUnderstood(f"{folder} is no folder: name the one that you bring to a lease")
    # A folder without __init__.py gives way to the client where that is installed.
    package = folder / "offpeak"
    package.mkdir(exist_ok=True)
    written = []
    for module in STANDALONE:
        source = Path(str(module.__file__))
        (package / source.name).write_bytes(source.read_bytes())
        written.append(str(package / source.name))
    session_of(context).printer.done({"written": written}, f"Wrote {' and '.join(written)}.")
