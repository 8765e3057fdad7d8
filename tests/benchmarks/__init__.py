"""Benchmarks: `make bench`. Figures beside a limit measured in the same run, never a test.

Each module has `run() -> Iterator[Figure]`. What matters is the ratio: the machine's noise is in
both numbers. `python -m tests.benchmarks append` runs one of them.
"""
