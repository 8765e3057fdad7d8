"""Work in an image begins with a source, too: fetched as the container's own user, before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from metering.agent.abilities import abilities_of
from metering.agent.clock import SystemClock
from metering.agent.runtimes import egress
from metering.agent.runtimes.confinement import find
from metering.agent.runtimes.images import Containers, Sources
from metering.agent.runtimes.podman import Podman
from metering.agent.runtimes.port import NotYet
from metering.agent.runtimes.process import ProcessRuntime
from metering.agent.runtimes.sources import Source
from tests.git_server.server import Repository, here
from tests.metering.agent.containers import Made
from tests.metering.agent.containers import image as image
from tests.metering.agent.containers import podman as podman
from tests.metering.agent.sources import forge
from tests.metering.agent.workloads import end_all
from tests.metering.agent.works import ROOT, accounts, ended, let_through, program, said, until

pytestmark = [ROOT, pytest.mark.skipif(not here(), reason="git and its server are not installed")]


def test_a_container_finds_the_files_as_its_own(
    tmp_path: Path, podman: Podman, image: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    commit = Repository(tmp_path / "lab" / "train.git").of_files(words=b"fetched")
    with forge(tmp_path, tmp_path) as served:
        monkeypatch.setenv("SSL_CERT_FILE", str(served.authority))
        out, why = egress.find(egress.parse_all(served.place), open_=False)
        users, state = accounts(), tmp_path / "state"
        confinement, more = find(network="allow", user=users.first, egress=out)
        if confinement is None or confinement.way_out is None:
            pytest.skip(why or more or "slirp4netns is not installed")
        let_through(state)
        runtime = ProcessRuntime(
            state,
            clock=SystemClock(),
            users=users,
            confinement=confinement,
            containers=Containers(
                replace(podman, network="allow", egress=out), Sources(folder=image.folder.parent)
            ),
        )
        assert {"fetch", "podman"} <= set(abilities_of(runtime))
        code = "import os; print(open('words').read(), os.stat('words').st_uid == os.getuid())"
        wanted = replace(
            program(code),
            image=image.named,
            source=Source(f"{served.address}/lab/train.git", "main"),
        )

        def start() -> bool:
            try:
                runtime.start(wanted)
            except NotYet:
                return False
            return True

        until(start)
        work = ended(runtime, wanted.lease_id)
        assert (work.exit_code, work.commit) == (0, commit), work
        assert said(state, wanted) == "fetched True\n"
        end_all(runtime)
