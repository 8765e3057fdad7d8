"""Every socket of the site."""

from __future__ import annotations

from typing import Any, cast

from django.urls import URLPattern, path

from config.lab_socket import LabConsumer
from config.live import MarketConsumer

socket_urls: list[URLPattern] = [
    path("ws/market", cast(Any, MarketConsumer.as_asgi())),
    path("ws/lab", cast(Any, LabConsumer.as_asgi())),
]
