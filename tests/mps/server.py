"""A double of `nvidia-cuda-mps-server`: a process that is there until its daemon ends it."""

import signal

signal.pause()
