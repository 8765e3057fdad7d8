"""What consumers run in a journey: small programs that tell a file what happens to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.metering.agent.works import PYTHON, let_through

PROGRAM = """
import json, os, pathlib, signal, sys, time

folder = pathlib.Path(sys.argv[1])

def tell(what, **more):
    said = {"what": what, "at": time.time(), **more}
    with (folder / "told").open("a") as file:
        file.write(json.dumps(said) + "\\n")

def noticed(*_):
    tell("notice", **json.loads(pathlib.Path("../notice.json").read_text()))

signal.signal(signal.SIGUSR1, noticed)
signal.signal(signal.SIGTERM, lambda *_: (tell("term"), sys.exit(0)))
tell("started", pid=os.getpid(), gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
     grace=os.environ.get("OFFPEAK_GRACE_SECONDS"))
while not (folder / "finish").exists():
    time.sleep(0.02)
tell("finished")
"""


class Work:
    """One piece of leased work. command: what to bid with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        let_through(folder)
        folder.chmod(0o777)  # it runs as another user, where it can
        self.command = [PYTHON, "-c", PROGRAM, str(folder)]

    def told(self, what: str) -> dict[str, Any] | None:
        """Return what it told of one thing, or None."""
        for said in self.everything():
            if said["what"] == what:
                return said
        return None

    def everything(self) -> list[dict[str, Any]]:
        """Return all that it told, oldest first."""
        path = self._folder / "told"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def finish(self) -> None:
        """Let it come to its end."""
        (self._folder / "finish").touch()
