"""NVIDIA's programs that MPS needs, stood in for by doubles that speak as they do."""
