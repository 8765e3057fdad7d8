"""The agent that runs on a GPU host: it runs leased work and reports what the GPUs did.

It is its own distribution, `offpeak-agent` (pyproject.toml beside this file), and imports nothing
of the server, so that a host needs neither Django nor a database. Imports inside this folder are
relative, so that it works as `metering.agent` here and as `offpeak_agent` there.
"""

from __future__ import annotations

VERSION = "0.2.0"
