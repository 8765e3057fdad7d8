"""Machines of one installation: each with a data directory, webs and loops of its own."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from config.env import read_env
from config.wiring import loop_groups
from tests.journeys.installation import Installation
from tests.ports import free_port


class Host(Installation):
    """What systemd starts on a machine from our units: `manage.py web` and `run GROUP`."""

    def __init__(self, home: Path, settings: Mapping[str, str], *, webs: int) -> None:
        super().__init__(home, settings)
        self.webs = {f"web-{number}": free_port() for number in range(1, webs)}
        self.webs["web"] = self.port
        self.groups = list(loop_groups(read_env(self.environment)))

    @property
    def names(self) -> list[str]:
        """Return every process of this machine."""
        return [*self.webs, *self.groups]

    def join(self, first: Host) -> None:
        """Take part in what another machine has founded."""
        self._logs.mkdir(parents=True)
        self.tokens = first.tokens

    def start_one(self, name: str) -> None:
        """Start one of its processes."""
        words = ["web"] if name in self.webs else ["run", name]
        port = str(self.webs.get(name, self.port))
        self.spawn(name, [sys.executable, "manage.py", *words], {"PORT": port})

    def serves(self, name: str) -> bool:
        """Tell if one of its webs says that it is ready."""
        return self.readyz(name) == 200

    def readyz(self, name: str) -> int:
        """Return what one of its webs answers to whether it is ready; 0 for nothing."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.webs[name]}/readyz", timeout=5
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code
        except (urllib.error.URLError, OSError):
            return 0
