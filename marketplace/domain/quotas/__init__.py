"""How much each tenant and unit may have: cohorts, limits, fair share, and who holds what."""
