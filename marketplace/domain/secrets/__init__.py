"""Secrets of work: names, versions and who set them. Values are nowhere in the rules."""
