"""NVIDIA's MPS on this host: who runs its control daemon, and what limits work on shares has."""
