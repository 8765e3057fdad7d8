"""Compiles the fake CUDA driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_cuda.c")
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def build(folder: Path) -> Path:
    """Compile the library under `folder`, once for all processes, and return its path."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "install a C compiler (gcc)"
    target = folder / sha256(SOURCE.read_bytes()).hexdigest()[:16] / "libcuda.so.1"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"libcuda.{os.getpid()}")
        subprocess.run([compiler, *FLAGS, "-o", str(new), str(SOURCE)], check=True)
        os.replace(new, target)
    return target
