"""`python -m tests.simulation.pausing_runs`: the synthetic week with pausing and without it."""

from __future__ import annotations

import django

SEEDS = (13, 7, 29)


def main() -> None:
    """Print what came of both weeks, for some seeds."""
    django.setup()
    # Late: what is imported has models.
    from tests.simulation.pausing_week import MONDAY, PausingWeek, came_of

    for seed in SEEDS:
        for pausing in (False, True):
            came = came_of(PausingWeek(seed, MONDAY, pausing=pausing).live())
            print(seed, "pausing" if pausing else "without", came, flush=True)


if __name__ == "__main__":
    main()
