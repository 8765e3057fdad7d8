"""What CUDA does of MPS as a program begins: it looks for the daemon, or takes the card itself.

Prints what limits hold for it as JSON, and goes on until its input ends.
"""

import json
import os
import socket
import sys
from pathlib import Path

HERE = Path(sys.argv[0]).resolve().parent
pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
card = os.environ["CUDA_VISIBLE_DEVICES"]
own = os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").partition("=")[2].rstrip("M")
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    one.connect(f"{pipe}/control")
except OSError:
    modes = json.loads((HERE / "modes.json").read_text())
    if modes.get(card) == "Exclusive_Process":
        sys.exit("CUDA_ERROR_DEVICE_UNAVAILABLE: all CUDA-capable devices are busy or unavailable")
    print(json.dumps({"percent": 100.0, "memory_mib": 0, "mps": False}), flush=True)
else:
    percent = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    one.send(json.dumps({"percent": percent, "memory": own}).encode())
    print(json.dumps(json.loads(one.recv(65536)) | {"mps": True}), flush=True)
if "--stay" in sys.argv:
    import signal

    signal.pause()
