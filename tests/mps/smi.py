"""A double of `nvidia-smi`: the compute mode of cards, kept beside it; only root may set it."""

import json
import os
import sys
from pathlib import Path

KEPT = Path(sys.argv[0]).resolve().with_name("modes.json")
NAMES = {"DEFAULT": "Default", "EXCLUSIVE_PROCESS": "Exclusive_Process", "PROHIBITED": "Prohibited"}

modes = json.loads(KEPT.read_text()) if KEPT.exists() else {}
match sys.argv[1:]:
    case ["-i", card, "--query-gpu=compute_mode", "--format=csv,noheader"]:
        print(modes.get(card, "Default"))
    case ["-i", card, "-c", mode] if mode in NAMES and os.geteuid() == 0:
        new = KEPT.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(modes | {card: NAMES[mode]}))
        os.replace(new, KEPT)
        print(f"Set compute mode to {mode} for GPU {card}.")
    case ["-i", card, "-c", _]:
        print(f"Unable to set the compute mode for GPU {card}: Insufficient Permissions")
        sys.exit(4)
    case _:
        print("Invalid combination of input arguments.")
        sys.exit(2)
