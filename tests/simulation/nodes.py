"""Nodes by how many GPUs they have left: sets of nodes as the bits of an integer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.traces import GPUS_PER_NODE


class Room:
    """How many GPUs each node has left, with the nodes of each level as one bit set."""

    def __init__(self, count: int) -> None:
        self.left = [GPUS_PER_NODE] * count
        self.level = [0] * (GPUS_PER_NODE + 1)
        self.level[GPUS_PER_NODE] = (1 << count) - 1
        self.total = count * GPUS_PER_NODE

    def change(self, node: int, by: int) -> None:
        """Give a node more room, or less."""
        bit, before = 1 << node, self.left[node]
        self.level[before] ^= bit
        self.left[node] = before + by
        self.level[before + by] |= bit
        self.total += by

    def tightest(self, gpus: int, among: int) -> int | None:
        """Return the node with the least room that still suffices, the lowest of equals."""
        for left in range(gpus, GPUS_PER_NODE + 1):
            found = self.level[left] & among
            if found:
                return (found & -found).bit_length() - 1
        return None

    def whole(self, among: int) -> int:
        """Return the nodes that are wholly free."""
        return self.level[GPUS_PER_NODE] & among


def each(nodes: int) -> Iterator[int]:
    """Yield the numbers of a bit set, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def nodes_needed(gpus: int) -> int:
    """Return how many nodes a gang takes."""
    return -(-gpus // GPUS_PER_NODE)
