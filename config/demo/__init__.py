"""A market that is alive: made-up organisations, a week replayed, and then activity as you watch.

Everything goes through the real commands, engine, agents and loops; only the GPUs, the people and
what they want are made up, by seeded dice, so that two demos tell the same story.
"""
