"""Who has which share, at each level of cohorts, and which policies there are to choose from."""
