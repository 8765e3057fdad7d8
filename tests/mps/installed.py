"""Puts the doubles where a PATH finds them."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = {
    "nvidia-cuda-mps-control": "control.py",
    "nvidia-cuda-mps-server": "server.py",
    "nvidia-smi": "smi.py",
    "cuda-work": "cuda.py",
}


@dataclass(frozen=True)
class Programs:
    """The doubles in a folder, which every account may read."""

    folder: Path

    @property
    def control(self) -> str:
        return str(self.folder / "nvidia-cuda-mps-control")

    @property
    def smi(self) -> str:
        return str(self.folder / "nvidia-smi")

    @property
    def work(self) -> str:
        return str(self.folder / "cuda-work")

    def mode(self, card: str) -> str:
        """Return the compute mode of a card."""
        modes: dict[str, str] = json.loads((self.folder / "modes.json").read_text())
        return modes.get(card, "Default")

    def fail(self, *faults: str) -> None:
        """Let the control program do otherwise than it should from now on."""
        (self.folder / "faults.json").write_text(json.dumps(faults))


def install(folder: Path) -> Programs:
    """Write the doubles, as programs that are named as NVIDIA's are."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name, source in SOURCES.items():
        target = folder / name
        text = Path(__file__).with_name(source).read_text()
        # Not the environment's: work's accounts need not reach that.
        python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
        target.write_text(f"#!{python} -IS\n{text}")
        target.chmod(0o755)
    (folder / "modes.json").write_text("{}")
    (folder / "modes.json").chmod(0o644)
    return Programs(folder)
