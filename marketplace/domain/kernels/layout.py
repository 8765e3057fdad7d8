"""The columns that kernels go through: their types, their seconds, and which row is what."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

ZERO = 2_208_988_800
"""Seconds count from 2040 on; columns reach from 2006 to 2074, what lies beyond is cut there."""
FAR = (1 << 30) - 1
"""The last second of a column: a difference of two never leaves 32 bits."""

KEY, SINCE, EARLIEST, DEADLINE = range(4)
"""How bids stand in order: what they are sorted by, the limit, negative so that it rises, and the
store position; then when they may start and have to be over, in milliseconds."""

SHAPE, LEVEL, DURATION, SOONEST, LATEST, SLOT, GPUS = range(7)
"""What the columns of bids say: the number of the shape; the level of the least GPUs of one host;
in seconds, how long at least, when it ends at the soonest and starts at the latest; whose it is;
how many GPUs, 0 where more is to be looked at than whether they are free."""

KIND, LEASE_MIN, FLOOR, KNOWN_FROM, KNOWN_UNTIL, OPENS, CLOSES, LONGEST = range(8)
"""What a column of facts says of a host: the number of its kind, the shortest lease and the lowest
floor of its offers; between which moments its windows are known, when the first of them opens, the
last closes, and how long the longest is."""
