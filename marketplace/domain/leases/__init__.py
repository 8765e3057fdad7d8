"""The life of a lease, and what prolongs it, cuts it short or goes on from it."""
