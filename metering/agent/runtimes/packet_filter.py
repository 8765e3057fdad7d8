"""What the keeper does about where leased work may connect to: a packet filter in its own network.

The filter is set from outside before the first instruction of the work, which has no right to
change it, and is read back. It knows addresses and no names.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

OURS = "10.0.2.0/24"
"""What slirp4netns makes of addresses: among them the host's loopback and its resolver."""
RESOLVER = "10.0.2.3/32"
NOT_PUBLIC = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
"""Addresses that mean something else at each place: of a network at home, of a host, and those at
which clouds tell a host who it is (168.63.129.16 is one of them)."""
ADDRESSES = Path("/proc/self/net/fib_trie")
SIX = Path("/proc/self/net/if_inet6")
CLONE_NEWNET, CLONE_NEWUSER = 0x4000_0000, 0x1000_0000
NS_GET_USERNS = 0xB701
CAPABILITY_VERSION_3, CAP_NET_ADMIN = 0x20080522, 12
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
SECONDS_MAX = 20
UNSET = "the filter of its network could not be set"
REFUSED = "-j REJECT"


def rules(*, open_: bool, allowed: Iterable[Sequence[Any]], own: Iterable[str]) -> list[str]:
    """Return the rules for what goes out, in the order in which they are asked.

    open_: every public address may be reached; else what is allowed alone. allowed: network and
    TCP port (0: each), as the owner named them. own: the host's addresses.
    """
    made = ["-o lo -j ACCEPT"]
    if open_:
        made += [f"-d {RESOLVER} -p {kind} --dport 53 -j ACCEPT" for kind in ("udp", "tcp")]
    made += [f"-d {OURS} {REFUSED}"]
    for network, port in allowed:
        made.append(f"-d {network} -p tcp{f' --dport {port}' if port else ''} -j ACCEPT")
    if open_:
        made += [f"-d {network} {REFUSED}" for network in (*NOT_PUBLIC, *own)]
    return [*made, "-j ACCEPT" if open_ else REFUSED]


def set_up(pid: int, about: Mapping[str, Any]) -> None:
    """Set the filter in the network of a process, and read it back. about: of `egress.Way`.

    Raises: OSError.
    """
    wanted = rules(open_=about["open"], allowed=about["allowed"], own=own_addresses())
    load(pid, about["program"], wanted)
    if SIX.exists():
        load(pid, about["program"].replace("iptables", "ip6tables"), ["-o lo -j ACCEPT"])


def load(pid: int, program: str, wanted: Sequence[str]) -> None:
    """Load rules in the network of a process: what they do not name is dropped.

    Raises: OSError.
    """
    lines = [f"-A OUTPUT {each}" for each in wanted]
    text = "\n".join(
        ["*filter", ":INPUT ACCEPT", ":FORWARD DROP", ":OUTPUT DROP", *lines, "COMMIT", ""]
    )
    _call(pid, [program], text)
    said = _call(pid, [program.removesuffix("-restore"), "-S", "OUTPUT"], "").splitlines()
    if said[:1] != ["-P OUTPUT DROP"] or len(said) != 1 + len(wanted):
        raise OSError(0, "the filter of its network is not what was set")


def _keep_right(libc: ctypes.CDLL) -> None:
    """Keep the right to set the filter over the start of a program: who is not root loses it."""
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    ours = (ctypes.c_uint32 * 6)(*[1 << CAP_NET_ADMIN] * 3)
    libc.capset(head, ours)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_ADMIN, 0, 0)


def owner_of(network: int) -> int:
    """Return the open user namespace that a network namespace is of; whose user we are may enter.

    The work's own may be one below it: bubblewrap makes another where it forbids more of them.
    """
    return int(fcntl.ioctl(network, NS_GET_USERNS))


def own_addresses() -> list[str]:
    """Return the addresses of this host in the network that we are in, loopback aside."""
    found: set[str] = set()
    address = ""
    for line in ADDRESSES.read_text().splitlines():
        kind, _, rest = line.strip().partition(" ")
        if kind == "|--":
            address = rest
        elif "host LOCAL" in line and not address.startswith("127."):
            found.add(f"{address}/32")
    return sorted(found)


def _call(pid: int, command: list[str], text: str) -> str:
    """Run a command in the network of a process, with what it reads; return what it prints.

    Raises: OSError.
    """
    with ExitStack() as files:
        entered = _namespaces(pid, files)
        heard, tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        files.callback(os.close, heard)
        files.callback(os.close, tell)
        libc = ctypes.CDLL(None, use_errno=True)

        def enter() -> None:
            for name, file, kind in entered:
                if libc.setns(file, kind):
                    error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                    os.write(tell, f"entering its {name}: {error}".encode())
                    raise error
            _keep_right(libc)

        try:
            done = subprocess.run(
                command,
                input=text,
                text=True,
                capture_output=True,
                timeout=SECONDS_MAX,
                check=False,
                cwd="/",
                preexec_fn=enter,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(0, f"{UNSET}: {error}") from None
        except subprocess.SubprocessError as error:  # in `enter`, which cannot say why itself
            raise OSError(0, f"{UNSET}: {_said(heard) or error}") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it failed"])[-1][:200]
        raise OSError(0, f"{UNSET}: {why}")
    return done.stdout


def _namespaces(pid: int, files: ExitStack) -> list[tuple[str, int, int]]:
    """Return the namespaces to enter, in order: what each is, its open file, its kind."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    files.callback(os.close, network)
    owner = owner_of(network)
    files.callback(os.close, owner)
    found = [("network", network, CLONE_NEWNET)]
    if os.geteuid() and os.fstat(owner).st_ino != os.stat("/proc/self/ns/user").st_ino:
        found.insert(0, ("user namespace", owner, CLONE_NEWUSER))
    return found


def _said(file: int) -> str:
    try:
        return os.read(file, 1024).decode()
    except BlockingIOError:
        return ""
