"""What the log of a market holds: its events, the values in them, why leases end, instants."""
