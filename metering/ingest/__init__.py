"""What agents send, taken in: samples exactly once, reports, and signs of life."""
