"""A distribution of ours as others get it: built, and installed where the repository is not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Installed:
    """A virtual environment that holds one wheel of ours and what that asks for, no more."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def licence(self) -> tuple[str, str]:
        """Return the licence that the metadata of the wheel name, and its text from there."""
        (known,) = self.folder.glob("lib/python*/site-packages/offpeak*.dist-info")
        named = metadata.PathDistribution(known).metadata["License-Expression"]
        return named, (known / "licenses" / "LICENSE").read_text()

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run something there, away from the repository; its own programs by name."""
        first, *rest = map(str, words)
        own = self.folder / "bin" / first
        return subprocess.run(
            [str(own) if own.exists() else first, *rest],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def installed(source: Path, into: Path) -> Installed:
    """Build the distribution whose pyproject.toml is in `source`; install its wheel, offline.

    What it depends on comes from this environment: linked, package by package, as its own
    metadata asks for it, so that one it forgets to name is missing.
    """
    draft, wheels, folder = into / "source", into / "wheels", into / "environment"
    left_out = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(source, draft, ignore=left_out)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index"]
    build = [*pip, "wheel", "--no-build-isolation", *alone, "--wheel-dir", str(wheels), str(draft)]
    subprocess.run(build, check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    there = Installed(folder)
    install = [*pip, "--python", str(there.python), "install", *alone, str(wheel)]
    subprocess.run(install, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    known = metadata.PathDistribution(next(packages.glob("*.dist-info")))
    for needed in _closure(known.requires or ()):
        for top in {Path(str(file)).parts[0] for file in needed.files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(needed.locate_file(top))))
    return there


def _closure(requires: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yield every distribution that these requirements lead to, extras left out."""
    waiting, seen = list(requires), set()
    while waiting:
        said = waiting.pop()
        form = _NAME.match(said)
        if form is None or "extra ==" in said or form[0].lower() in seen:
            continue
        seen.add(form[0].lower())
        try:
            found = metadata.distribution(form[0])
        except metadata.PackageNotFoundError:
            assert ";" in said, f"{said} is not installed"
            continue
        yield found
        waiting += found.requires or ()
