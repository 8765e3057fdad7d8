"""Who may set which policy of a market, and what a policy must not say."""
