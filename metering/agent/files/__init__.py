"""Files of leased work: its inputs come before it starts, what it leaves goes when it ended."""
