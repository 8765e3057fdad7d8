"""Short diagnostics of a card between two leases, whose result is known beforehand."""
