"""The policy lab: run a stretch of the log again under other rules, and compare.

It runs the real engine over a copy of the facts and writes nothing. `comparing.compare` is the way
in.
"""
