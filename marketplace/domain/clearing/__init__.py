"""Continuous matching, what it decides, and how decisions are written down as events."""
