"""Whether agents could be heard: asked of the site itself, while no agent is heard at all."""

from __future__ import annotations

from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import urlopen

from config.env import Env

SECONDS = 2.0


def answers(env: Env) -> bool:
    """Tell if the web of this installation answers, here or at its address.

    Where it does not, it is the market that is away: no host is to blame for its silence.
    """
    here = "127.0.0.1" if env.host in ("0.0.0.0", "::", "") else env.host  # compared
    places = [f"http://{here}:{env.port}", *([env.base_url.rstrip("/")] if env.base_url else [])]
    return any(_answers(f"{place}/healthz") for place in places)


def _answers(url: str) -> bool:
    if urlsplit(url).scheme not in ("http", "https"):
        return False
    try:
        with urlopen(url, timeout=SECONDS) as answer:  # http and https only
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):
        return False
