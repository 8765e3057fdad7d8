"""Use: agents report GPU-time per lease, and use becomes charges in the ledger."""
