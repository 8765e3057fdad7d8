"""The independent check of a round; it shares no code with what cleared it."""
