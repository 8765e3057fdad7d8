"""`offpeak files`: bring folders for work to use, and take home what it made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pathspec
import typer

from . import parcel, sources
from .problems import Problem
from .session import Session, Yes, confirm, session_of
from .spoken import NotUnderstood
from .transfers import Transfers
from .whole_numbers import whole

app = typer.Typer(help="Files: folders for work to use, and what it made.", no_args_is_help=True)

IGNORE = ".offpeakignore"
ALWAYS = (".git/", ".venv/", "__pycache__/", IGNORE, parcel.DRAFTS)
FILES_WARNED = 10_000
BYTES_WARNED = 2**30
SHOWN_MAX = 20

COLUMNS = (
    ("id", "folder"),
    ("title", "title"),
    ("files", "files"),
    ("size_bytes", "size", lambda value, entry: size_of(value)),
    ("lease_id", "left by lease"),
    ("exit_code", "exit code"),
    ("kept_at", "kept since"),
)
SENT = (
    ("id", "folder"),
    ("files", "files"),
    ("size_bytes", "size", lambda value, entry: size_of(value)),
    ("sent_bytes", "sent", lambda value, entry: size_of(value)),
)
Folder = Annotated[
    str,
    typer.Argument(
        help="a folder of this machine, git+https://host/owner/repo@ref#folder or s3://bucket/prefix"
    ),
]
TAKEN = (
    ("at", "to"),
    ("id", "folder"),
    ("files", "files"),
    ("size_bytes", "size", lambda value, entry: size_of(value)),
    ("exit_code", "exit code"),
)
OVER = ("closed", "failed")
"""States of a lease that has ended."""
Kept = Annotated[UUID, typer.Argument(help="the id of a folder, from `files up` or `files list`")]


def size_of(count: Any) -> str:
    """Return bytes as people read them: 1.5 MiB."""
    if not isinstance(count, int):
        return "-"
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit is for all")


@app.command()
def up(
    context: typer.Context,
    folder: Folder,
    title: Annotated[str, typer.Option(help="to know it again; its name unless you say")] = "",
) -> None:
    """Bring a folder: what of it is not there yet is sent."""
    bring(session_of(context), folder, title)


def bring(session: Session, folder: str | Path, title: str = "") -> str:
    """Send a folder and print what became of it; return its id."""
    sent = send(session, folder, title)
    columns = (*SENT, ("origin", "from")) if "origin" in sent else SENT
    session.printer.facts(sent, columns)
    return str(sent["id"])


def send(session: Session, folder: str | Path, title: str = "") -> dict[str, Any]:
    """Send a folder, of this machine or from elsewhere; return its id and what was sent of it."""
    with sources.at_hand(session, str(folder)) as found:
        sent = _send(session, found.root, title or sources.title_of(found))
    return {**sent, "origin": found.origin} if found.origin else sent


def _send(session: Session, folder: Path, title: str) -> dict[str, Any]:
    with packed(session, folder) as packing, transfers_of(session) as transfers:
        root, listing, read = packing
        made, sent = transfers.send(root, read, title=title or root.name[:120])
    return {
        "id": made,
        "files": len(listing.files),
        "size_bytes": listing.size,
        "sent_bytes": sent.bytes,
        "sent_blobs": sent.blobs,
    }


@contextmanager
def packed(session: Session, folder: Path) -> Iterator[tuple[Path, parcel.Listing, parcel.Parcel]]:
    """Give a folder as it is sent, having said what of it goes. It must not change meanwhile."""
    root = folder.resolve()
    if not root.is_dir():
        raise NotUnderstood(f"{folder} is no folder.")
    listing = parcel.look(root, ignoring(root))
    told(session, listing)
    if not listing.files:
        raise NotUnderstood(f"{folder} has no file that would be sent.")
    try:
        read = parcel.pack(root, listing)
        if len(read.manifest) > parcel.MANIFEST_BYTES_MAX:
            raise NotUnderstood(f"{folder} has too many files: put small ones in an archive.")
        yield root, listing, read
    except parcel.FileChanged as changed:
        detail = f"{changed} changed while it was read: send the folder again when it is at rest."
        raise Problem(409, {"code": "file-changed", "detail": detail}) from None


@app.command()
def down(
    context: typer.Context,
    folder: Annotated[
        str | None, typer.Argument(help="the id of a folder; none with --lease")
    ] = None,
    to: Annotated[Path | None, typer.Argument(help="where to: a new or an empty folder")] = None,
    lease: Annotated[UUID | None, typer.Option(help="all that is kept of this lease")] = None,
    into: Annotated[
        Path | None, typer.Option("--to", help="where to; of a lease lease-… unless you say")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="also into one that has files")] = False,
) -> None:
    """Fetch a folder, or what a lease left; every part is checked before any file is there."""
    if lease is not None and to is None and folder is not None and not is_id(folder):
        to, folder = Path(folder), None
    session, place = session_of(context), to or into
    if to is not None and into is not None:
        raise NotUnderstood("Say once where to.")
    if lease is not None and folder is None:
        of_lease(session, lease, place or Path(f"lease-{str(lease)[:8]}"), overwrite=overwrite)
    elif folder is not None and lease is None:
        if not is_id(folder):
            raise NotUnderstood(f"{folder} is no id of a folder: offpeak files list names them.")
        if place is None:
            raise NotUnderstood("Say where to: offpeak files down FOLDER ./result")
        take(session, folder, place, overwrite=overwrite)
    else:
        raise NotUnderstood("Name a folder, or a lease by --lease: one of the two.")


def is_id(text: str) -> bool:
    """Tell if a text is an id, and not a path."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def of_lease(session: Session, lease_id: UUID, to: Path, *, overwrite: bool = False) -> None:
    """Fetch all that is kept of what a lease left, and print where it is."""
    if not overwrite:
        refuse_unless_empty(to, "name another by --to, or say --overwrite")
    lease = session.client.get(f"leases/{lease_id}")
    if not lease["output_folders"]:
        raise nothing_kept(lease)
    taken = take_outputs(session, lease, to)
    session.printer.table(taken, TAKEN, empty="Nothing.")


def take_outputs(session: Session, lease: Mapping[str, Any], to: Path) -> list[dict[str, Any]]:
    """Fetch what a lease left; of several hosts or runs each into a folder of its own.

    Return for each what it is and where.
    """
    taken = []
    kept = lease["output_folders"]
    several = len({each["host_id"] for each in kept}) < len(kept)
    for each in kept:
        at = to if len(kept) == 1 else to / str(each["folder_id" if several else "host_id"])
        taken.append({**fetch(session, each["folder_id"], at), "at": str(at)})
    for failed in lease["outputs_failed"]:
        session.printer.tell(f"Not kept: {failed['reason']}")
    return taken


def nothing_kept(lease: Mapping[str, Any]) -> Problem:
    """Return why nothing of a lease can be fetched."""
    reasons = [str(each["reason"]) for each in lease["outputs_failed"]]
    if lease["state"] not in OVER:
        detail = f"The work of that lease goes on: offpeak cp lease:{lease['id']}/… copies of it."
        return Problem(409, {"code": "not-kept-yet", "detail": detail})
    why = f" {'; '.join(reasons)}." if reasons else " Its bid says by --keep what is."
    return Problem(404, {"code": "nothing-kept", "detail": f"Nothing of that lease is kept.{why}"})


def take(session: Session, folder: str, to: Path, *, overwrite: bool = False) -> None:
    """Fetch a folder and print what it is."""
    if not overwrite:
        refuse_unless_empty(to, "name another, or say --overwrite")
    session.printer.facts(fetch(session, folder, to), COLUMNS)


def refuse_unless_empty(to: Path, mend: str = "name another") -> None:
    """Refuse to write where something is. Raises: NotUnderstood."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise NotUnderstood(f"{to} is there and not empty: {mend}.")


def fetch(session: Session, folder: str, to: Path) -> dict[str, Any]:
    """Fetch a folder; return what it is."""
    try:
        with transfers_of(session) as transfers:
            return transfers.fetch(folder, to)
    except parcel.FolderWrong as wrong:
        detail = f"The folder cannot be taken: {wrong}."
        raise Problem(409, {"code": "folder-wrong", "detail": detail}) from None


def transfers_of(session: Session) -> Transfers:
    """Return what sends and fetches blobs for this run."""
    return Transfers(session.client, session.server)


@app.command("list")
def list_folders(
    context: typer.Context,
    lease: Annotated[UUID | None, typer.Option(help="what this lease left")] = None,
    limit: Annotated[int, typer.Option(parser=whole(1), help="how many at most")] = 50,
) -> None:
    """List folders, newest first."""
    session = session_of(context)
    rows = session.client.all("folders", limit=limit, lease_id=lease)
    session.printer.table(rows, COLUMNS, empty="No folders.")


@app.command("rm")
def remove(context: typer.Context, folder: Kept, yes: Yes = False) -> None:
    """Keep a folder no longer."""
    session = session_of(context)
    confirm(session, f"Remove folder {folder} for everybody in your organisation?", yes=yes)
    done = session.client.delete(f"folders/{folder}")
    session.printer.done(done, "Removed.")


def ignoring(root: Path) -> parcel.LeavesOut:
    """Return what tells which paths stay at home."""
    said = root / IGNORE
    try:
        lines = said.read_text().splitlines() if said.is_file() else []
        spec = pathspec.PathSpec.from_lines("gitignore", [*ALWAYS, *lines])
    except (OSError, ValueError) as error:
        raise NotUnderstood(f"{said} cannot be read: {error}") from None
    return spec.match_file


def told(session: Session, listing: parcel.Listing) -> None:
    """Say what is sent and what is left out before anything goes."""
    tell = session.printer.say
    files = "1 file" if len(listing.files) == 1 else f"{len(listing.files)} files"
    tell(f"{files}, {size_of(listing.size)}: what is not there yet is sent.")
    for path, why in listing.left_out[:SHOWN_MAX]:
        tell(f"Left out: {path} ({why})")
    if len(listing.left_out) > SHOWN_MAX:
        tell(f"Left out besides: {len(listing.left_out) - SHOWN_MAX} more.")
    if len(listing.files) > FILES_WARNED or listing.size > BYTES_WARNED:
        tell(f"That is much. What the work does not need, {IGNORE} can name.")
