"""`offpeak cp`: files between this machine and leased work, what work left, and volumes."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal
from uuid import UUID

import typer

from . import files, parcel, parts
from .access import Host, by_ssh
from .problems import Problem
from .session import Session, session_of
from .spoken import NotUnderstood
from .transfers import Transfers
from .tunnels import Lease

Kind = Literal["here", "lease", "volume"]
Ends = Callable[[str], list[str]]
"""Makes the two ends of a copy of the name by which ssh knows the lease."""

TOLD_MAX = 3
"""So many of scp's last lines are shown."""
COLUMNS = (("from", "copied"), ("to", "to"))
NAMED = re.compile(r"(lease|volume):([^/]*)(?:/(.*))?", re.DOTALL)
FORM = "write lease:LEASE/path or volume:NAME/path"
RECURSE = "say -r to copy it with all that is in it"

Source = Annotated[str, typer.Argument(help="a path, lease:LEASE/path or volume:NAME/path")]
Target = Annotated[str, typer.Argument(help="the same; one of the two is a path of this machine")]
Recursive = Annotated[bool, typer.Option("-r", "--recursive", help="folders, with all in them")]


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a copy. name: of the lease or the volume. path: as it was said."""

    kind: Kind
    name: str
    path: str
    said: str


def cp(
    context: typer.Context,
    source: Source,
    target: Target,
    recursive: Recursive = False,
    host: Host = None,
) -> None:
    """Copy files to or from a lease's running work, what it left, or a volume.

    `offpeak cp lease:LEASE/out/model.pt .`, `offpeak cp -r ./data volume:data/raw`
    """
    copy(session_of(context), source, target, recursive=recursive, host=host)


def copy(
    session: Session, source: str, target: str, *, recursive: bool, host: UUID | None = None
) -> None:
    """Copy from one place to the other, and print both."""
    one, other = place_of(source), place_of(target)
    if (one.kind == "here") == (other.kind == "here"):
        both = "both are" if one.kind == "here" else "neither is"
        raise NotUnderstood(f"One of the two is on this machine, and {both}: {FORM} for the other.")
    if one.kind == "here":
        _need_source(one, recursive)
    try:
        match one.kind, other.kind:
            case "here", "volume":
                _to_volume(session, one, other)
            case "volume", _:
                _from_volume(session, one, other, recursive)
            case "here", _:
                _into_work(session, one, other, recursive, host)
            case _:
                _from_lease(session, one, other, recursive, host)
    except parts.NothingThere as absent:
        raise _unknown(one, str(absent)) from None
    except parts.InTheWay as other_kind:
        raise _problem(409, "path-in-the-way", f"{other.said}: {other_kind}.") from None
    session.printer.facts({"from": one.said, "to": other.said}, COLUMNS)


def place_of(said: str) -> Place:
    """Read one end of a copy. Raises: NotUnderstood."""
    named = NAMED.fullmatch(said)
    if named is None:
        return Place("here", "", said, said)
    kind, name, path = named.groups(default="")
    if not name:
        raise NotUnderstood(f"{said!r} names no {kind}: {FORM}.")
    if kind == "lease":
        try:
            name = str(UUID(name))
        except ValueError:
            raise NotUnderstood(f"{name!r} is no lease: {FORM}.") from None
        return Place("lease", name, path, said)
    path = path.strip("/")
    if path and {"", ".", ".."} & set(path.split("/")):
        raise NotUnderstood(f"{path!r} is no path in a volume.")
    return Place("volume", name, path, said)


def _need_source(one: Place, recursive: bool) -> None:
    if not os.path.lexists(one.path):
        raise NotUnderstood(f"There is no {one.path} on this machine.")
    if os.path.isdir(one.path) and not recursive:
        raise NotUnderstood(f"{one.path} is a folder: {RECURSE}.")


# --- running work, and what it left ----------------------------------------------------------


def _into_work(
    session: Session, one: Place, other: Place, recursive: bool, host: UUID | None
) -> None:
    way = _way(session, other, host)
    if not way.runs():
        text = f"The work of lease {other.name} does not run: nothing can be copied to it."
        raise _problem(409, "work-not-running", text)
    _scp(session, way, recursive, other, lambda at: [one.path, f"{at}:{other.path or '.'}"])


def _from_lease(
    session: Session, one: Place, other: Place, recursive: bool, host: UUID | None
) -> None:
    way = _way(session, one, host)
    if way.runs():
        _scp(session, way, recursive, one, lambda at: [f"{at}:{one.path or '.'}", other.path])
        return
    lease = session.client.get(f"leases/{one.name}")
    kept = [each for each in lease["output_folders"] if host in (None, UUID(str(each["host_id"])))]
    if not kept:
        raise files.nothing_kept(lease)
    if len({each["host_id"] for each in kept}) > 1:
        hosts = ", ".join(str(each["host_id"]) for each in kept)
        raise NotUnderstood(f"The lease ran on several hosts: say --host, one of {hosts}.")
    of = f"folders/{kept[0]['folder_id']}"
    name = session.client.get(of)["manifest"]
    _take(session, of, name, one, other, recursive)


def _way(session: Session, lease: Place, host: UUID | None) -> Lease:
    return Lease(client=session.client, server=session.server, id=UUID(lease.name), host=host)


def _scp(session: Session, way: Lease, recursive: bool, there: Place, ends: Ends) -> None:
    program = shutil.which("scp")
    if program is None or shutil.which("ssh-keygen") is None:
        raise NotUnderstood(
            "There is no scp on this machine: install OpenSSH's client (openssh-client)."
        )
    flags = ["-r"] if recursive else []

    def line(options: list[str], name: str) -> list[str]:
        return [program, *options, *flags, "--", *ends(name)]

    code, said = by_ssh(session, way, line, hears=True, quiet=session.printer.as_json)
    if code:
        raise _why(said, there)


def _why(said: str, there: Place) -> Problem:
    """Return what scp's last words mean."""
    lines = [each.partition("scp: ")[2] or each for each in said.splitlines() if each.strip()]
    told = "; ".join(lines[-TOLD_MAX:]) or "scp ended without a word"
    if "No such file" in said:
        return _unknown(there, there.path)
    if "not a regular file" in said or "is a directory" in said.lower():
        return _problem(409, "is-a-folder", f"{there.said} is a folder: {RECURSE}.")
    return _problem(409, "not-copied", f"Not copied, or not all of it: {told}.")


# --- volumes ---------------------------------------------------------------------------------


def _from_volume(session: Session, one: Place, other: Place, recursive: bool) -> None:
    of = f"volumes/{one.name}"
    name = session.client.get(of)["manifest"]
    if not name:
        raise parts.NothingThere(one.path)
    _take(session, of, name, one, other, recursive)


def _to_volume(session: Session, one: Place, other: Place) -> None:
    """Make the volume's next version: the newest one, with these files in it."""
    of = f"volumes/{other.name}"
    shown = session.client.get(of)
    try:
        with files.transfers_of(session) as transfers:
            base: parts.Manifest = parts.EMPTY
            if shown["manifest"]:
                base = transfers.manifest(of, shown["manifest"])
            made = _merged(session, transfers, of, base, Path(one.path), other.path)
    except parcel.FileChanged as changed:
        text = f"{changed} changed while it was read: copy it again when it is at rest."
        raise _problem(409, "file-changed", text) from None
    session.client.post(f"{of}/versions", {"manifest": made, "base": shown["version"]})


def _merged(
    session: Session, transfers: Transfers, of: str, base: parts.Manifest, source: Path, to: str
) -> str:
    """Send what is new in a volume; return the name of the whole."""
    try:
        inside = parts.is_folder(base, to)
    except parts.NothingThere:
        inside = False
    name = source.resolve().name
    at = f"{to}/{name}".lstrip("/") if inside else to
    if source.is_dir():
        root = source.resolve()
        listing = parcel.look(root, files.ignoring(root))
    else:
        root, listing = source.resolve().parent, parcel.look_at(source.resolve())
    files.told(session, listing)
    read = parcel.pack(root, listing)
    part = parcel.read_manifest(read.manifest, read.name)
    if not source.is_dir():
        at, _, last = at.rpartition("/")
        part["files"] = [{**each, "path": last} for each in part["files"]]
    made = parcel.Parcel(parts.written(parts.with_part(base, at, part)), read.blobs, read.sizes)
    if len(made.manifest) > parcel.MANIFEST_BYTES_MAX:
        raise NotUnderstood("The volume would have too many files: put small ones in an archive.")
    transfers.bring(of, root, made)
    return made.name


# --- to this machine -------------------------------------------------------------------------


def _take(session: Session, of: str, name: str, one: Place, other: Place, recursive: bool) -> None:
    """Fetch what a manifest has at a path, to where `cp` would put it."""
    path = one.path.strip("/")
    try:
        with files.transfers_of(session) as transfers:
            manifest = transfers.manifest(of, name)
            whole = parts.is_folder(manifest, path)
            if whole and not recursive:
                raise NotUnderstood(f"{one.said} is a folder: {RECURSE}.")
            to = Path(other.path)
            last = PurePosixPath(path).name
            part = parts.part_of(manifest, path)
            if whole:
                transfers.unpack(of, part, to / last if to.is_dir() and last else to)
            else:
                _take_one(transfers, of, part, to / last if to.is_dir() else to, last)
    except parcel.FolderWrong as wrong:
        raise _problem(409, "folder-wrong", f"It cannot be taken: {wrong}.") from None


def _take_one(transfers: Transfers, of: str, part: parts.Manifest, to: Path, name: str) -> None:
    if not to.parent.is_dir():
        raise NotUnderstood(f"There is no folder {to.parent} on this machine.")
    with tempfile.TemporaryDirectory(prefix=".offpeak-", dir=to.parent) as folder:
        transfers.unpack(of, part, Path(folder))
        os.replace(Path(folder) / name, to)


def _unknown(place: Place, path: str) -> Problem:
    inside = {"lease": "lease", "volume": "volume"}.get(place.kind, "folder")
    return _problem(404, "path-unknown", f"There is no {path or '.'} in that {inside}.")


def _problem(status: int, code: str, detail: str) -> Problem:
    return Problem(status, {"code": code, "detail": detail})
