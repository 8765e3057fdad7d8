"""Our own NVML: a C library compiled for the tests against NVIDIA's header, driven by a script.

The agent's real binding (`pynvml`) loads it in place of the driver's. What it proves: that we call
the interface as NVIDIA declares it and reckon right with its answers. What it cannot prove: how a
real driver times its samples; for that there is tests/real_gpu.
"""
