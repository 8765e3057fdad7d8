"""Whether a cluster starts jobs of ours on this node, looked at now and then beside all else.

What is asked for the node, its partition and its account is what `sbatch` goes by. A cluster that
does not answer is given a while: a controller that is started anew is no news.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ..clock import Clock
from .slurm_commands import ClusterAway, ClusterRefused, Slurm

LOOK_MS = 15_000
AWAY_MS = 120_000
"""A cluster that does not answer for so long starts nothing."""

log = logging.getLogger(__name__)


class Standing:
    """What the cluster said last. every_ms: how long that is good for."""

    def __init__(
        self, cluster: Slurm, *, clock: Clock, every_ms: int = LOOK_MS, away_ms: int = AWAY_MS
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._every_ms, self._away_ms = every_ms, away_ms
        self._looked_ms: int | None = None
        self._heard_ms: int | None = None
        self.why = ""
        """Why no job of ours begins here; empty: some do, or it is not known yet."""

    def look(self) -> None:
        """Ask the cluster, if it is time to."""
        now_ms = self._clock.now_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < self._every_ms:
            return
        self._looked_ms = now_ms
        if self._heard_ms is None:
            self._heard_ms = now_ms
        try:
            why = next(self._found(), "")
        except ClusterAway as away:
            if now_ms - self._heard_ms < self._away_ms:
                return
            why = f"the cluster does not answer: {away}"
        else:
            self._heard_ms = now_ms
        if why != self.why:
            log.warning("Slurm: %s", why or "jobs begin here again")
        self.why = why

    def _found(self) -> Iterator[str]:
        """Yield what stands in the way. Raises: ClusterAway."""
        try:
            node = self._cluster.this_node()
        except ClusterRefused:
            node = None
        if node is None:
            yield f"the cluster knows no node {self._cluster.node}"
            return
        if node.closed:
            yield f"the cluster starts nothing on this node: {node.closed}"
        try:
            if shut := self._cluster.shut_partition():
                yield shut
            if not self._cluster.has_account():
                account, name = self._cluster.account, self._cluster.own_name
                yield f"{name} may not submit jobs in the account {account} any more"
        except ClusterRefused as refused:
            yield f"the cluster takes no job: {refused}"
