"""What every event store promises, and what only some of them can be put through."""
