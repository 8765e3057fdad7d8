"""The one base class of every rule that says no."""

from __future__ import annotations

import re


class Refusal(Exception):
    """The request was understood, and a rule of the market refuses it.

    Subclasses live beside the rule that raises them, and the first line of their docstring is
    the message a person reads; a second paragraph, if any, says what to do about it. The API
    answers with the `status` of the class and `code`; anything else raised is a bug.
    """

    status = 409

    def __init__(self, **details: object) -> None:
        super().__init__(self.message())
        self.details = details

    @classmethod
    def message(cls) -> str:
        """Return the sentence a person reads."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def advice(cls) -> str:
        """Return what to do about it, or an empty string."""
        _, _, rest = (cls.__doc__ or "").strip().partition("\n\n")
        return " ".join(rest.split())

    @property
    def code(self) -> str:
        """`OfferAlreadyWithdrawn` -> `offer-already-withdrawn`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()


class Unknown(Refusal):
    """There is no such thing."""

    status = 404


class Invalid(Refusal):
    """What was sent does not make sense, whatever the state of the market."""

    status = 422


class Forbidden(Refusal):
    """You may not do that."""

    status = 403


class Unauthenticated(Refusal):
    """Nobody knows who you are."""

    status = 401
