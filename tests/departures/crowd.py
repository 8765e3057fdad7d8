"""Others who want the staying host's GPUs, so that what leaves another host may find no room."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta

from marketplace.sdk.problems import Problem, Unreachable
from tests.departures.ground import STAYS, Ground
from tests.journeys.hosts import CONSUMER

LENGTHS = (60, 180)
"""How long others lease a GPU, in seconds: drawn between these."""
PATIENCE_SECONDS = 240
"""So long they wait for one, as what departs does; then they go elsewhere."""
WARM_SECONDS = 120.0
"""Until then those who came first leave again one by one, as later ones do."""


class Crowd:
    """Bids that come at random, so many that they ask for a share of all GPUs there are.

    They are of the tenant whose work departs: hosts that cannot keep work apart have one tenant at
    a time. load: that share: 0.8 of 16 GPUs, at two minutes a lease, is a bid every nine seconds.
    """

    def __init__(self, ground: Ground, *, load: float, seed: int) -> None:
        self._ground, self._load = ground, load
        self._draw = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._come, name="crowd")

    def start(self) -> None:
        """Fill the host up to the load, then let more come; return when it is as it stays."""
        if not self._load:
            return
        for _ in range(min(self._ground.room, round(self._load * self._ground.room))):
            self._bid(self._draw.uniform(LENGTHS[0], LENGTHS[1]))
        self._thread.start()
        self._over.wait(WARM_SECONDS)

    def end(self) -> None:
        """Let nobody come any more; those who are there have their time."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _come(self) -> None:
        pause = sum(LENGTHS) / 2 / (self._load * self._ground.room)
        while not self._over.wait(self._draw.expovariate(1 / pause)):
            self._bid(self._draw.uniform(*LENGTHS))

    def _bid(self, seconds: float) -> None:
        length = round(seconds)
        deadline = datetime.now(UTC) + timedelta(seconds=length + PATIENCE_SECONDS)
        asked = {
            "query": f"gpu=L4 region={STAYS}",
            "gpus": 1,
            "duration_seconds": length,
            "deadline": deadline.isoformat(),
            "limit": "1",
            "service_class": "on-demand",
            "workload": {"kind": "other", "command": ["sleep", "600"]},
        }
        try:
            with self._ground.market.client(CONSUMER) as api:
                api.post("bids", asked)
        except (Problem, Unreachable):
            return  # one fewer comes
