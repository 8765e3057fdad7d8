"""Compiles the fake library and puts it in the place of the driver's."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
FLAGS = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def header_folder() -> Path:
    """Return the folder of NVIDIA's nvml.h, which the package nvidia-nvml-dev brings."""
    spec = find_spec("nvidia")
    assert spec is not None and spec.submodule_search_locations, "install nvidia-nvml-dev"
    for place in spec.submodule_search_locations:
        for found in sorted(Path(place).glob("*/include/nvml.h")):
            return found.parent
    raise AssertionError("install nvidia-nvml-dev: nvml.h is missing")


def build(folder: Path) -> Path:
    """Compile the library under `folder`, once for all processes, and return its path."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "install a C compiler (gcc)"
    target = folder / sha256(SOURCE.read_bytes()).hexdigest()[:16] / SONAME
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{SONAME}.{os.getpid()}")
        command = [compiler, *FLAGS, f"-Wl,-soname,{SONAME}", f"-I{header_folder()}"]
        subprocess.run([*command, "-o", str(new), str(SOURCE), "-lpthread"], check=True)
        os.replace(new, target)
    return target


def preload(library: Path) -> None:
    """Load it, so that the binding's `CDLL("libnvidia-ml.so.1")` finds it by its SONAME."""
    ctypes.CDLL(str(library))
