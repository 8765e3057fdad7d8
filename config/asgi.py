"""One server process: logs, files, tunnels and bids by short ways, HTTP by threads, the rest
of the sockets by Channels.

Django's own ASGI handler costs one to two milliseconds of CPU a request more than its WSGI
handler; only sockets need ASGI, so only they get it. A thread is taken for a request that is here
as a whole, and given back before its answer is read: slow clients hold up nobody.
"""

from __future__ import annotations

import os
from typing import Any, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from config.wsgi import application as pages_and_api  # isort: skip  # sets Django up first

from a2wsgi import WSGIMiddleware
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings

from config.database import limits
from config.web.downloads import Downloads
from config.web.front import Front
from config.web.intake import Intake, Outlet
from config.web.probes import Probes, watch_clock
from config.web.proxies import Proxies
from config.web.sockets import Sockets, socket_urls
from config.web.transfers import Transfers
from config.web.tunnels import Tunnels
from config.web.work_logs import WorkLogs
from config.web.workplaces.workplaces import Workplaces

WEB_THREADS = 8

limits.keep(limits.Limits(settings.ENV.database_statement_seconds))

_threads = Outlet(cast(Any, WSGIMiddleware(cast(Any, pages_and_api), WEB_THREADS)))

_ordinary = ProtocolTypeRouter(
    {
        "http": cast(
            Any,
            Probes(
                Proxies(
                    WorkLogs(Downloads(Transfers(Intake(Front(_threads))))),
                    settings.TRUSTED_PROXIES,
                )
            ),
        ),
        "websocket": cast(
            Any,
            Tunnels(
                cast(
                    Any,
                    AllowedHostsOriginValidator(
                        cast(
                            Any,
                            Proxies(
                                Sockets(
                                    cast(
                                        Any, AuthMiddlewareStack(URLRouter(cast(Any, socket_urls)))
                                    )
                                ),
                                settings.TRUSTED_PROXIES,
                            ),
                        )
                    ),
                )
            ),
        ),
    }
)

application = Workplaces(cast(Any, _ordinary))

watch_clock()
