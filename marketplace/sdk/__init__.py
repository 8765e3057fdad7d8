"""`offpeak`: the market from a program or a terminal, over HTTP and nothing else.

Its own distribution (pyproject.toml beside this file): imports are relative, nothing of the server.

    from offpeak import Client
    with Client("https://market.example", token=os.environ["OFFPEAK_TOKEN"]) as market:
        for lease in market.all("leases", state="active"):
            print(lease["id"], lease["gpu_model"])
"""

from __future__ import annotations

from .client import Client
from .problems import Problem

VERSION = "0.2.0"
__all__ = ["VERSION", "Client", "Problem"]
