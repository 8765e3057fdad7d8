"""What every command warns of at its start: settings that work, and that nobody should want."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Warning, register

from config.address import is_loopback


@register
def plain_http(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    """Warn of a base URL that is not encrypted and that others than this machine reach."""
    base = urlsplit(settings.ENV.base_url)
    if base.scheme != "http" or is_loopback(base.hostname or ""):
        return []
    return [
        Warning(
            f"OFFPEAK_BASE_URL={settings.ENV.base_url} is not encrypted: passwords, sessions and"
            " tokens can be read on the way.",
            hint="Put a proxy with TLS in front (deploy/nginx) and name its https:// address.",
            id="site.W001",
        )
    ]
