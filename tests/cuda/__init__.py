"""A scripted CUDA driver for tests: what the probe of a card calls, compiled."""
