"""The quota check in front of a grant, and how a book keeps its quotas up to date."""
