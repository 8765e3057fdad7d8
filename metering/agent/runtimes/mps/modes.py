"""The compute mode of a card: whether work can go past the server of MPS to the card itself.

By NVIDIA's `nvidia-smi`, since work that leaves its daemon out would run without any limit. In mode
EXCLUSIVE_PROCESS one process has the card, and while MPS is used that is its server.
"""

from __future__ import annotations

import subprocess

PROGRAM = "nvidia-smi"
EXCLUSIVE = "Exclusive_Process"
MODES = {"Default": "DEFAULT", EXCLUSIVE: "EXCLUSIVE_PROCESS", "Prohibited": "PROHIBITED"}
"""As it is answered, and as it is set."""
ANSWER_SECONDS_MAX = 20.0


class ModeNotSet(Exception):
    """The compute mode of a card cannot be read or set; the text says why."""


def mode_of(program: str, card: str) -> str:
    """Return the compute mode of a card, as nvidia-smi names it. Raises: ModeNotSet."""
    return _run(program, "-i", card, "--query-gpu=compute_mode", "--format=csv,noheader")


def set_mode(program: str, card: str, mode: str) -> None:
    """Set the compute mode of a card, and read it back. Raises: ModeNotSet."""
    if mode_of(program, card) == mode:
        return
    _run(program, "-i", card, "-c", MODES.get(mode, "DEFAULT"))
    if (now := mode_of(program, card)) != mode:
        raise ModeNotSet(f"compute mode of {card} was set to {mode} and is {now}")


def _run(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModeNotSet(f"{PROGRAM}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[:300]
        raise ModeNotSet(f"{PROGRAM} {' '.join(arguments)}: {said or done.returncode}")
    return done.stdout.decode(errors="replace").strip()
