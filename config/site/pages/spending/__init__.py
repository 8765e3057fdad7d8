"""Pages of spending and of the budgets that limit it."""
