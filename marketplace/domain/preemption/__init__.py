"""Who gives way to a bid: interrupted, reclaimed within quotas, or bought out."""
