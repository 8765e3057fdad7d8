"""Why work is not started that every runtime may give."""


class NotYet(Exception):
    """The work cannot be started at this moment, but soon: what is in its way is about to go."""
