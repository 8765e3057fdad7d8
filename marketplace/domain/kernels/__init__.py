"""Loops over arrays that are compiled where numba is; they know nothing of the market."""
