"""Past rounds, cleared again from the log: as they were, or under other rules."""
