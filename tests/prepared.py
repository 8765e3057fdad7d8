"""What processes of ours read before they work: imported once, by the one they are forked from."""

from __future__ import annotations

import config.wsgi  # isort: skip  # sets Django up first

import uvicorn

import config.urls
import config.web.sockets
import marketplace.engine

__all__ = ["config", "marketplace", "uvicorn"]
