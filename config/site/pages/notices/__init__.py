"""Pages of notices: the inbox, how one is told, and an organisation's webhooks."""
