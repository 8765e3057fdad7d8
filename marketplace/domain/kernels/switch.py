"""What may be compiled: said once by who composes the site, before the first round.

Compiling the search of rounds takes numba, and the first round after an upgrade a minute or two.
"""

from __future__ import annotations

compile_rounds = False
"""Whether kernels are compiled; the results are the same."""
