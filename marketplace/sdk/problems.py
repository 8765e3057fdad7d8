"""What the market said no to, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from .printing import shown


class Problem(Exception):
    """An answer of `application/problem+json`.

    status: HTTP's. code: the market's permanent name for it. details: the figures.
    """

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.body = dict(body)
        self.code = str(body.get("code", f"http-{status}"))
        self.advice = str(body.get("advice") or "")
        self.details: Mapping[str, Any] = body.get("details") or {}
        super().__init__(str(body.get("detail") or body.get("title") or f"HTTP {status}"))

    @property
    def sentence(self) -> str:
        """Return what a person reads: what is wrong, the fields concerned, what to do."""
        fields = [
            f"{error.get('pointer', '').lstrip('#/')}: {error.get('detail', '')}"
            for error in self.body.get("errors") or ()
        ]
        figures = ", ".join(
            f"{name.replace('_', ' ')}: {shown(value)}" for name, value in self.details.items()
        )
        told = " ".join(part for part in (str(self), *fields, self.advice) if part)
        return f"{told} ({figures})" if figures else told


class Unreachable(Exception):
    """The market did not answer, or what answered is not the market."""


class NotSendable(ValueError):
    """What was given cannot be sent: it is no text, or no address."""


def problem_of(response: httpx.Response) -> Problem:
    """Read an answer that is an error."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    return Problem(response.status_code, body)
