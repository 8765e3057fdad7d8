"""Work that saves itself on a volume, and the ways in which its host is taken away."""

from __future__ import annotations

from typing import Literal

Kind = Literal["notice", "gpu-lost", "xid", "kill-switch", "power", "silence"]
OF_GPU: tuple[Kind, ...] = ("notice", "gpu-lost", "xid")
OF_HOST: tuple[Kind, ...] = ("kill-switch", "power", "silence")
KINDS = OF_GPU + OF_HOST
REASONS: dict[Kind, int] = {
    "notice": 201,
    "gpu-lost": 507,
    "xid": 509,
    "kill-switch": 201,
    "power": 505,
    "silence": 505,
}
"""With which reason a lease ends at each. A host without power is silent until it is back."""
CHECKPOINT_SECONDS = 5
STEP_SECONDS = 0.1

PROGRAM = f"""
import os, pathlib, signal, sys, time

folder, volume = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(folder.parent / "library"))
from checkpoint import Checkpoints

saves = Checkpoints("volumes/" + volume)
last = saves.newest()
step = last.about["step"] + 1 if last else 0
lease = os.environ["OFFPEAK_LEASE_ID"]
told = (folder / lease).open("a", buffering=1)
told.write(f"{{step}} {{time.time()}} {{os.getpid()}}\\n")
finish = folder / f"{{lease}}.finish"
while not finish.exists():
    time.sleep({STEP_SECONDS})
    step += 1
    told.write(f"{{step}} {{time.time()}}\\n")
    failure = folder / f"{{lease}}.fails"
    if failure.exists():
        if failure.read_text() == "dies":
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    if saves.due(every={CHECKPOINT_SECONDS}):
        with saves.save(step=step) as made:
            (made / "state").write_text("x" * 100_000)
    if saves.ending:
        sys.exit(143)
"""
"""Steps of work, each told. On a GPU that fails it dies or hangs, as kernels do."""
