"""The agent's log, which others may read: no token stands in it, whoever quoted one.

The market has rules of its own for this, for more kinds of secrets; here nothing of it is at hand.
"""

from __future__ import annotations

import logging
import re
import sys

HIDDEN = "[hidden]"
FORMAT = "%(asctime)s %(levelname)s %(message)s"

_TOKEN = re.compile(r"(offp_[a-z]+_[0-9A-Za-z]{6})[0-9A-Za-z_]+")
_PASSWORD_IN_URL = re.compile(r"""(\b[a-z][a-z0-9+.-]*://[^\s:/@"'<>]*):[^\s"'<>]*@""", re.I)
_HEADER = re.compile(r"""(\b(?:authorization|cookie)["']?\s*[:=]\s*["']?)[^\r\n"']+""", re.I)
_BEARER = re.compile(r"(\bbearer\s+)[\w.~+/=-]{6,}", re.I)


class Hiding(logging.Formatter):
    """Hides what looks like a secret in the whole of a line, the text of an error included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line as it may be read."""
        return hide(super().format(record))


def hide(text: str) -> str:
    """Return a text without tokens, passwords in addresses and headers that prove who asks."""
    text = _TOKEN.sub(rf"\1{HIDDEN}", text)
    text = _PASSWORD_IN_URL.sub(rf"\1:{HIDDEN}@", text)
    return _BEARER.sub(rf"\1{HIDDEN}", _HEADER.sub(rf"\1{HIDDEN}", text))


def write_to_stderr(level: int) -> None:
    """Let the agent's log go where its service collects it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Hiding(FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
