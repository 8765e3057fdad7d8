"""Structured logs that hold no secret, in files of bounded size."""
