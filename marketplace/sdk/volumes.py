"""`offpeak volumes`: named folders that outlive leases, which work finds and may change."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from . import files, parcel, sources
from .forms import money
from .problems import Problem
from .session import Session, Yes, confirm, session_of
from .spoken import NotUnderstood, length_of
from .whole_numbers import gib, whole

app = typer.Typer(
    help="Volumes: named folders that outlive leases, which work finds and may change.",
    no_args_is_help=True,
)

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
READ_ONLY = "ro"
"""Said after a second colon of --volume, or after the first where no path is said."""


def _size(value: Any, entry: Any) -> str:
    return files.size_of(value)


def _gib(value: Any, entry: Any) -> str:
    return f"{value} GiB"


def _writers(value: Any, entry: Any) -> str:
    """Return whose work writes to it now."""
    leases = [f"lease {each}" for each in entry.get("leases", ())]
    return ", ".join(leases or [f"bid {each}" for each in value or ()]) or "-"


def _standing(value: Any, entry: Any) -> str:
    """Return what of its time and its price a person has to know."""
    if value:
        why = "its time is over" if value == "time" else "its price is not paid"
        return f"expired: {why}; its files go {entry['removed_at']}"
    if entry.get("unpaid_since"):
        return f"not paid since {entry['unpaid_since']}; read-only from {entry['read_only_at']}"
    return "expires soon" if entry.get("notified_at") else "-"


LIST = (
    ("name", "volume"),
    ("size_gib", "size", _gib),
    ("size_bytes", "used", _size),
    ("version", "version"),
    ("price", "price per GiB and month", money),
    ("expires_at", "expires"),
    ("bids", "written by", _writers),
    ("expired_because", "to be seen to", _standing),
)
ONE = (
    *LIST,
    ("files", "files"),
    ("charged", "charged so far", money),
    ("charged_until", "charged until"),
    ("cost_centre", "cost centre"),
    ("subscriber_id", "unit that pays"),
    ("created_at", "created"),
    ("id", "id"),
)
VERSIONS = (
    ("version", "version"),
    ("files", "files"),
    ("size_bytes", "size", _size),
    ("lease_id", "left by lease"),
    ("kept_at", "kept since"),
)
PUT = (
    ("name", "volume"),
    ("version", "version"),
    ("files", "files"),
    ("size_bytes", "size", _size),
    ("sent_bytes", "sent", _size),
)
GOT = (
    ("name", "volume"),
    ("version", "version"),
    ("files", "files"),
    ("size_bytes", "size", _size),
)
SIZES = "how much it may hold: 50 (GiB), 500GiB, 1.5TiB or 50 GB, rounded up to whole GiB"
FILES = (("path", "file"), ("size_bytes", "size", _size))

Volume = Annotated[str, typer.Argument(help="the name of a volume")]
Life = Annotated[
    str | None, typer.Option("--for", help="how long from now: 30d; from 8 to 366 days")
]
Mounted = Annotated[
    list[str] | None,
    typer.Option(
        "--volume", help="the work finds it: NAME, NAME:PATH or NAME:PATH:ro; may be repeated"
    ),
]


@app.command()
def create(
    context: typer.Context,
    volume: Volume,
    size: Annotated[int, typer.Option("--size", parser=gib, metavar="SIZE", help=SIZES)],
    life: Life = None,
    unit: Annotated[str | None, typer.Option("--unit", help="business unit that pays")] = None,
    centre: Annotated[str, typer.Option("--cost-centre", help="instead of the unit's own")] = "",
) -> None:
    """Make a volume. Your unit pays for what is in it, by the hour."""
    session = session_of(context)
    _need_name(volume)
    asked: dict[str, Any] = {"name": volume, "size_gib": size, "cost_centre": centre}
    if life is not None:
        asked["expires_at"] = _until(life)
    if unit is not None:
        asked["subscriber_id"] = unit
    done = session.client.post("volumes", asked)
    shown = session.client.get(f"volumes/{volume}", after=done["position"])
    session.printer.facts(shown, LIST)


@app.command("list")
def list_volumes(context: typer.Context) -> None:
    """List volumes with what is in them, their price, and who writes to them."""
    session = session_of(context)
    session.printer.table(session.client.all("volumes"), LIST, empty="No volumes.")


@app.command()
def show(context: typer.Context, volume: Volume) -> None:
    """Show a volume and the versions of it that are kept."""
    session = session_of(context)
    found = session.client.get(_path(volume))
    versions = session.client.get(f"{_path(volume)}/versions")["data"]
    if session.printer.as_json:
        session.printer.json({**found, "versions": versions})
        return
    session.printer.facts(found, ONE)
    session.printer.table(versions, VERSIONS, empty="Nothing was kept in it yet.")


@app.command()
def resize(
    context: typer.Context,
    volume: Volume,
    size: Annotated[int, typer.Argument(parser=gib, metavar="SIZE", help=SIZES)],
) -> None:
    """Give a volume another size, never below what is in it."""
    _change(session_of(context), volume, {"size_gib": size})


@app.command()
def extend(
    context: typer.Context,
    volume: Volume,
    life: Annotated[str, typer.Option("--for", help="how long from now: 60d; up to 366 days")],
) -> None:
    """Keep a volume for longer, at today's price; also one that has expired."""
    _change(session_of(context), volume, {"expires_at": _until(life)})


@app.command("rm")
def remove(context: typer.Context, volume: Volume, yes: Yes = False) -> None:
    """Remove a volume with all its versions, unless a bid or a lease names it."""
    session = session_of(context)
    path = _path(volume)
    confirm(session, f"Remove {volume} with all that is in it, for everybody?", yes=yes)
    session.printer.done(session.client.delete(path), f"Removed {volume}.")


@app.command()
def put(
    context: typer.Context,
    volume: Volume,
    folder: files.Folder,
) -> None:
    """Bring a folder as the next version: what of it is not there yet is sent."""
    session = session_of(context)
    found = session.client.get(_path(volume))
    with (
        sources.at_hand(session, folder) as source,
        files.packed(session, source.root) as packing,
    ):
        root, listing, read = packing
        room = found["size_gib"] * 2**30
        if listing.size > room:
            raise NotUnderstood(
                f"{folder} has {files.size_of(listing.size)}, and {volume} holds "
                f"{found['size_gib']} GiB: offpeak volumes resize {volume} GIB"
            )
        with files.transfers_of(session) as transfers:
            sent = transfers.bring(_path(volume), root, read)
        said = {"manifest": read.name, "base": found["version"]}
        done = session.client.post(f"{_path(volume)}/versions", said)
    told = {
        "name": volume,
        "version": done["version"],
        "files": len(listing.files),
        "size_bytes": listing.size,
        "sent_bytes": sent.bytes,
    }
    session.printer.facts(told, PUT)


@app.command()
def get(
    context: typer.Context,
    volume: Volume,
    to: Annotated[Path, typer.Argument(help="where to: a new or an empty folder")],
    version: Annotated[
        int | None, typer.Option(parser=whole(1), help="an older one that is kept")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="also into one that has files")] = False,
) -> None:
    """Fetch a volume's newest version; every part of it is checked."""
    session = session_of(context)
    if not overwrite:
        files.refuse_unless_empty(to, "name another, or say --overwrite")
    chosen = _version(session, volume, version)
    try:
        with files.transfers_of(session) as transfers:
            path = _path(volume)
            transfers.unpack(path, transfers.manifest(path, chosen["manifest"]), to)
    except parcel.FolderWrong as wrong:
        detail = f"The volume cannot be taken: {wrong}."
        raise Problem(409, {"code": "folder-wrong", "detail": detail}) from None
    session.printer.facts({**chosen, "name": volume}, GOT)


@app.command("files")
def list_files(
    context: typer.Context,
    volume: Volume,
    version: Annotated[
        int | None, typer.Option(parser=whole(1), help="an older one that is kept")
    ] = None,
) -> None:
    """List the files of a volume's newest version."""
    session = session_of(context)
    chosen = _version(session, volume, version)
    with files.transfers_of(session) as transfers:
        manifest = transfers.manifest(_path(volume), chosen["manifest"])
    rows = [
        {"path": each["path"], "size_bytes": sum(part[2] for part in each.get("parts", ()))}
        for each in manifest.get("files", ())
    ]
    session.printer.table(sorted(rows, key=lambda row: str(row["path"])), FILES, empty="No files.")


def mounted(value: Any, entry: Any) -> str:
    """Return the volumes of a bid as they are said: data:volumes/data, weights:in:ro."""
    said = [
        f"{each['name']}:{each['path']}" + ("" if each["writable"] else f":{READ_ONLY}")
        for each in value or ()
    ]
    return ", ".join(said) or "-"


def mounts_of(said: list[str] | None) -> list[dict[str, Any]]:
    """Return volumes of work as they were said: NAME, NAME:PATH, NAME:ro or NAME:PATH:ro."""
    found = []
    for each in said or ():
        name, *rest = each.split(":")
        writable = READ_ONLY not in rest[-1:]
        paths = rest if writable else rest[:-1]
        if not NAME.fullmatch(name) or len(paths) > 1 or "" in paths:
            raise NotUnderstood(
                f"--volume {each!r} is no volume: write NAME, NAME:PATH or NAME:PATH:ro."
            )
        mount: dict[str, Any] = {"name": name, "writable": writable}
        found.append(mount | ({"path": paths[0]} if paths else {}))
    return found


def _version(session: Session, volume: str, wanted: int | None) -> dict[str, Any]:
    """Return the newest version of a volume, or the one that is wanted."""
    if wanted is None:
        newest: dict[str, Any] = session.client.get(_path(volume))
        if not newest["manifest"]:
            raise NotUnderstood(f"Nothing was kept in {volume} yet.")
        return newest
    kept: list[dict[str, Any]] = session.client.get(f"{_path(volume)}/versions")["data"]
    for each in kept:
        if each["version"] == wanted:
            return each
    numbers = ", ".join(str(each["version"]) for each in kept)
    raise NotUnderstood(f"Version {wanted} of {volume} is not kept. Kept: {numbers or 'none'}.")


def _change(session: Session, volume: str, asked: dict[str, Any]) -> None:
    done = session.client.patch(_path(volume), asked)
    shown = session.client.get(_path(volume), after=done["position"])
    session.printer.facts(shown, LIST)


def _until(life: str) -> str:
    """Return when a time from now is over."""
    until = datetime.now().astimezone() + timedelta(seconds=length_of(life))
    return until.isoformat(timespec="seconds")


def _path(volume: str) -> str:
    _need_name(volume)
    return f"volumes/{volume}"


def _need_name(volume: str) -> None:
    if not NAME.fullmatch(volume):
        raise NotUnderstood(
            "A volume's name is up to 64 small letters, digits, '.', '_' and '-', and begins "
            "with a letter or a digit."
        )
