"""`manage.py web`: serve pages, API and sockets in this process."""

from __future__ import annotations

from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand

from config.database import limits
from config.processes.beating import beat_in_background
from config.processes.orphans import end_with_supervisor
from config.processes.starting import refuse_unfit
from config.security.signing_keys import tell_key_meanwhile
from config.web.connections import Connection, allow_many_connections
from ledger.collecting import seldom

SOCKET_MESSAGE_BYTES_MAX = 2**18
"""Of what comes in on a socket; the largest that is meant is a frame of a tunnel, 64 KiB."""


class Command(BaseCommand):
    """uvicorn on the address that OFFPEAK_HOST and PORT name."""

    help = "Serve pages, API and sockets."

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        end_with_supervisor()
        allow_many_connections()
        limits.keep(limits.Limits(settings.ENV.database_statement_seconds))
        refuse_unfit()
        tell_key_meanwhile()
        beat_in_background()
        seldom()
        uvicorn.run(
            "config.asgi:application",
            http=Connection,
            host=settings.ENV.host,
            port=settings.ENV.port,
            lifespan="off",
            ws_max_size=SOCKET_MESSAGE_BYTES_MAX,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=5,
            proxy_headers=False,  # `config.web.proxies` looks who the client is
        )
