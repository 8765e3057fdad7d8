"""What processes of ours read before they work: imported once, by the one they are forked from."""

from __future__ import annotations

import gc

import config.wsgi  # isort: skip  # sets Django up first

import uvicorn

import config.urls
import config.web.sockets
import marketplace.engine
import tests.esdb_protocol.server
import tests.metering.agent.doomed

__all__ = ["config", "marketplace", "tests", "uvicorn"]

gc.freeze()
"""A collector that walked all that would write to it, and each fork would have it for itself."""
