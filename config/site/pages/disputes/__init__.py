"""Contested charges: what is contested, the evidence, what is said, and how it is decided."""
