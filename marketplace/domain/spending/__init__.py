"""Spending budgets: what a part of an organisation may spend on leases in a period."""
