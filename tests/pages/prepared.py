"""What a site reads before it serves: imported once, by the process that sites are forked from."""

from __future__ import annotations

import config.wsgi  # isort: skip  # sets Django up first

import uvicorn

import config.sockets
import config.urls

__all__ = ["config", "uvicorn"]
