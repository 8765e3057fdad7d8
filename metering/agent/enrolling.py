"""`offpeak-agent enrol URL CODE` and `offpeak-agent rotate-token`."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .credential import TOKEN, Enrolled, TokenFile, read_kept, write_private
from .rotation import NONCE_BYTES, rotate
from .runtimes.users import make_passable
from .uplink import HttpUplink, Refused, Unreachable
from .wire_of_tokens import CODE_SCHEME, TokenAsked

VERBS = ("enrol", "rotate-token")
UNDER_WAY = "enrolling.json"


def main(arguments: Sequence[str], *, state_dir: Path) -> int:
    """Run one of VERBS and return the exit status: 0 done, 1 not done, 2 wrong options."""
    parser = _parser(state_dir)
    options = parser.parse_args(arguments)
    options.state_dir = options.state_dir.absolute()
    try:
        if options.verb == "enrol":
            return _enrol(options)
        return _rotate(options)
    except (Refused, Unreachable, OSError, ValueError) as error:
        said = error.sentence if isinstance(error, Refused) else str(error)
        print(f"offpeak-agent {options.verb}: {said}", file=sys.stderr)
        return 1


def _parser(state_dir: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="offpeak-agent")
    verbs = parser.add_subparsers(dest="verb", required=True)
    enrol = verbs.add_parser("enrol", help="exchange a code for this host's token, and keep it")
    enrol.add_argument("server", metavar="URL", help="base URL of the market")
    enrol.add_argument("code", metavar="CODE", help="as the host's page or `offpeak hosts enrol` "
                       "shows it")  # fmt: skip
    enrol.add_argument("--token-file", type=Path, help="where the token is kept; otherwise in "
                       "the state directory")  # fmt: skip
    enrol.add_argument("--ca-file", type=Path, help="certificates to trust for the server")
    enrol.add_argument("--allow-plain-http", action="store_true", help="beyond this machine too")
    renew = verbs.add_parser("rotate-token", help="put a new token in the place of the old one")
    for each in (enrol, renew):
        each.add_argument("--state-dir", type=Path, default=state_dir, help="of the agent")
    return parser


def _enrol(options: argparse.Namespace) -> int:
    state_dir: Path = options.state_dir
    make_passable(state_dir)
    token_file = (options.token_file or state_dir / TOKEN).absolute()
    if not token_file.parent.is_dir():
        raise ValueError(f"there is no folder {token_file.parent}")
    code = options.code.strip()
    uplink = HttpUplink(
        options.server,
        "-".join(code.split()) or "-",
        ca_file=options.ca_file,
        allow_plain_http=options.allow_plain_http,
        scheme=CODE_SCHEME,
    )
    # Kept before the market is asked: an answer that is lost is had by asking again.
    path, about = state_dir / UNDER_WAY, hashlib.sha256(code.encode()).hexdigest()
    begun = read_kept(path)
    nonce = begun.get("nonce") if begun.get("code") == about else None
    if not isinstance(nonce, str):
        nonce = secrets.token_hex(NONCE_BYTES)
        write_private(path, json.dumps({"nonce": nonce, "code": about}) + "\n")
    given = uplink.enrol(TokenAsked(nonce=nonce, hostname=socket.gethostname()[:200]))
    write_private(token_file, given.token + "\n")
    Enrolled(
        server=options.server,
        token_file=token_file,
        ca_file=None if options.ca_file is None else options.ca_file.absolute(),
        allow_plain_http=options.allow_plain_http,
        made_at=int(time.time()),
    ).keep(state_dir)
    path.unlink(missing_ok=True)
    print(f"Enrolled at {options.server} as host {given.host_id}; its token is in {token_file}.")
    print("Next: offpeak-agent doctor, then offpeak-agent run (both find server and token there).")
    return 0


def _rotate(options: argparse.Namespace) -> int:
    enrolled = Enrolled.kept_in(options.state_dir)
    if enrolled is None:
        raise ValueError(
            f"this host was not enrolled ({options.state_dir}): offpeak-agent enrol URL CODE"
        )
    rotate(enrolled, options.state_dir, lambda token: uplink_of(enrolled, token))
    print(f"The new token is in {enrolled.token_file}; the old one is revoked.")
    return 0


def uplink_of(enrolled: Enrolled, token: TokenFile) -> HttpUplink:
    """Return the way to the market that this host is enrolled with."""
    return HttpUplink(
        enrolled.server,
        token,
        ca_file=enrolled.ca_file,
        allow_plain_http=enrolled.allow_plain_http,
    )
