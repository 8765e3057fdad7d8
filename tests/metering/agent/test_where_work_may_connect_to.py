"""Work connects to what its host's owner lets it, and to nothing else: tried with real sockets."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes import egress, packet_filter
from metering.agent.runtimes.confinement import find
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.port import NotYet, StartFailed, WorkSpec
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.work_as import Wish, WorkUnsafe, egress_of, work_as
from tests.metering.agent.containers import Made, contained
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.networks import (
    HOST,
    METADATA,
    OTHER,
    PORTS,
    PRIVATE,
    PUBLIC,
    Network,
    neighbourhood,
)
from tests.metering.agent.workloads import end_all
from tests.metering.agent.works import ROOT, accounts, ended, let_through, program, said

TRIES = """
import json, socket, sys
found = {}
for place, port in json.loads(sys.argv[1]):
    try:
        with socket.create_connection((place, port), 10) as made:
            found[f"{place}:{port}"] = made.recv(10).decode()
    except OSError as error:
        found[f"{place}:{port}"] = "refused"
query = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
query.settimeout(0.5)
try:
    query.connect(("10.0.2.3", 53))
    query.send(b"data to be carried off")
    query.recv(10)
except TimeoutError:
    found["resolver"] = "sent"
except OSError:
    found["resolver"] = "refused"
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    found["raw"] = "made"
except OSError:
    found["raw"] = "refused"
print(json.dumps(found), flush=True)
"""
TLS, PLAIN = PORTS


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("slirp4netns") is None or egress.find(open_=True)[0] is None:
        pytest.skip("slirp4netns or iptables is not installed")  # tests/install-tools.sh brings it
    with neighbourhood() as network:
        yield network


@pytest.fixture(params=["process", "container"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Host:
    """A host that lets work connect to what is named, whichever way it runs work."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        folder: Path,
        kind: str,
        entries: str,
        *,
        open_: bool,
    ) -> None:
        allowed = egress.parse_all(entries) if entries else []
        out, why = egress.find(allowed, open_=open_)
        assert out is not None, why
        self.folder = folder
        let_through(folder)
        if kind == "container":
            podman: Podman = request.getfixturevalue("podman")
            made: Made = request.getfixturevalue("image")
            podman = replace(podman, network="private" if open_ else "allow", egress=out)
            self.runtime: ProcessRuntime = contained(folder, podman, made)
            return
        users = accounts()
        confinement, why = find(
            network="private" if open_ else "allow", user=users.first, egress=out
        )
        if confinement is None:
            pytest.skip(why)
        self.runtime = ProcessRuntime(
            folder, clock=SystemClock(), users=users, confinement=confinement
        )

    def tries(self, network: Network, places: Sequence[tuple[str, int]]) -> dict[str, str]:
        wanted = program(TRIES, json.dumps(places))
        network.within(self._start, wanted)
        ended(self.runtime, wanted.lease_id)
        found: dict[str, str] = json.loads(said(self.folder, wanted))
        end_all(self.runtime)
        return found

    def _start(self, wanted: WorkSpec) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self.runtime.start(wanted)
            except NotYet:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return


@ROOT
def test_with_an_open_network_public_addresses_are_reached_and_the_owners_own_are_not(
    request: pytest.FixtureRequest, network: Network, tmp_path: Path, kind: str
) -> None:
    host = Host(request, tmp_path / "state", kind, "", open_=True)
    assert "network-open" in abilities_of(host.runtime)
    assert dict(host.runtime.sandbox.enforces)["way out"].endswith("public addresses only")

    found = host.tries(
        network, [(PUBLIC, TLS), (PRIVATE, TLS), (METADATA, TLS), (HOST, TLS), ("10.0.2.2", TLS)]
    )

    assert found.pop(f"{PUBLIC}:{TLS}") == "served"
    assert found.pop("resolver") == "sent"
    assert set(found.values()) == {"refused"}


@ROOT
def test_what_the_owner_names_is_reached_beside_public_addresses(
    request: pytest.FixtureRequest, network: Network, tmp_path: Path
) -> None:
    host = Host(request, tmp_path / "state", "process", f"10.99.0.0/16:{TLS}", open_=True)

    found = host.tries(network, [(PRIVATE, TLS), (PRIVATE, PLAIN), (PUBLIC, PLAIN)])

    assert found[f"{PRIVATE}:{TLS}"] == found[f"{PUBLIC}:{PLAIN}"] == "served"
    assert found[f"{PRIVATE}:{PLAIN}"] == "refused"


@ROOT
def test_with_an_allow_list_nothing_else_is_reached_and_no_resolver_asked(
    request: pytest.FixtureRequest,
    network: Network,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"mirror.example": (PUBLIC,), "gone.example": ()}
    monkeypatch.setattr(egress, "_addresses", known.__getitem__)
    listed = f"mirror.example:{TLS},gone.example:*,10.0.0.0/8:{PLAIN}"
    host = Host(request, tmp_path / "state", kind, listed, open_=False)
    assert "network-allow-list" in abilities_of(host.runtime)
    assert dict(host.runtime.sandbox.enforces)["way out"].endswith("allow-list of 3")
    reached = [("mirror.example", TLS), (PUBLIC, TLS), (PRIVATE, PLAIN)]
    refused = [
        ("mirror.example", PLAIN), (OTHER, TLS), (PRIVATE, TLS), (METADATA, PLAIN), (HOST, TLS),
        ("gone.example", TLS), ("other.example", TLS), ("10.0.2.2", PLAIN), ("10.0.2.3", PLAIN),
    ]  # fmt: skip

    found = host.tries(network, [*reached, *refused])

    assert [found.pop(f"{place}:{port}") for place, port in reached] == ["served"] * 3
    assert set(found.values()) == {"refused"}, found


def test_names_are_looked_up_once_before_the_first_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(egress.Egress, "_look_up", lambda self: asked.append("looked"))
    out = egress.Egress("iptables-restore", egress.parse_all("a.example:443"), open_=False)

    with pytest.raises(NotYet):
        out.now()
    out._found = {"a.example": ("203.0.113.9", "203.0.113.10")}

    way = out.now()
    assert way.allowed == (("203.0.113.10/32", 443), ("203.0.113.9/32", 443))
    assert "203.0.113.9 a.example\n" in way.hosts()
    assert asked


def test_a_name_that_means_the_host_itself_means_nothing() -> None:
    assert egress._addresses("localhost") == ()
    unfit = ("127.0.0.2", METADATA, "0.0.0.0", "224.0.0.1", "240.0.0.1")
    assert not any(egress._is_fit(IPv4Address(each)) for each in unfit)
    assert egress._is_fit(IPv4Address(PRIVATE)), "such as of a mirror in the owner's network"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models.example", "with a port"),
        (":443", "with a port"),
        ("models.example:0", "a port from 1"),
        ("models.example:65536", "a port from 1"),
        ("models.example:-1", "a port from 1"),
        ("models.example:\u0661", "a port from 1"),
        ("10.0.0.1/8:1", "is no network"),
        ("10.0.0.256:1", "is no network"),
        ("a b:1", "is no name"),
        ("-j ACCEPT:1", "is no name"),
        ("[::1]:1", "is no name"),
        ("a:1,", "with a port"),
        (",".join(f"a{n}:1" for n in range(300)), "256 entries"),
    ],
)
def test_a_list_that_says_something_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        egress.parse_all(text)


@given(
    st.lists(st.tuples(st.ip_addresses(v=4), st.integers(0, 32), st.integers(0, 65_535))),
    st.booleans(),
)
def test_what_is_not_named_is_dropped_whatever_the_list(
    entries: list[tuple[IPv4Address, int, int]], open_: bool
) -> None:
    allowed = [(str(IPv4Network((int(a), b), strict=False)), port) for a, b, port in entries]
    made = packet_filter.rules(open_=open_, allowed=allowed, own=["198.51.100.1/32"])

    assert made[0] == "-o lo -j ACCEPT"
    ours = made.index("-d 10.0.2.0/24 -j REJECT")
    assert all(made.index(f"-d {network} -p tcp{f' --dport {port}' if port else ''} -j ACCEPT")
               > ours for network, port in allowed)  # fmt: skip
    assert made[-1] == ("-j ACCEPT" if open_ else "-j REJECT")
    assert ("-d 169.254.0.0/16 -j REJECT" in made) == open_
    assert any("--dport 53" in each for each in made[:ours]) == open_


def test_a_filter_that_cannot_be_set_leaves_work_without_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress, "_try", lambda program: "not permitted")

    assert egress_of(Wish(network="private")) is None
    with pytest.raises(WorkUnsafe, match="not permitted"):
        egress_of(Wish(network="allow", allowed=(egress.parse("a:1"),)))
    with pytest.raises(WorkUnsafe, match="needs what is allowed"):
        egress_of(Wish(network="allow"))
    with pytest.raises(WorkUnsafe, match="says nothing"):
        egress_of(Wish(network="none", allowed=(egress.parse("a:1"),)))


@ROOT
def test_a_list_is_not_promised_where_nothing_would_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if egress.find(open_=True)[0] is None:
        pytest.skip("iptables is not installed")  # tests/install-tools.sh brings it
    users = accounts()
    listed = (egress.parse("203.0.113.2:443"),)
    uids = f"{users.uids[0]}-{users.uids[-1]}"
    with pytest.raises(WorkUnsafe, match="needs bubblewrap"):
        work_as(Wish(users=uids, confine=False, network="allow", allowed=listed))
    confinement, why = find(
        network="allow", user=users.first, egress=egress.find(listed, open_=False)[0]
    )
    if confinement is None:
        pytest.skip(why)
    monkeypatch.setattr("metering.agent.runtimes.mps.owners.mps_runs", lambda pipe: True)
    runtime = ProcessRuntime(
        tmp_path, clock=SystemClock(), users=users, confinement=replace(confinement, slirp="/x")
    )
    share = replace(program("pass"), gpu_uuids=("GPU-a/mps-1of2/50pct-100mib",))
    with pytest.raises(StartFailed, match="on a list only"):
        runtime.start(share)
