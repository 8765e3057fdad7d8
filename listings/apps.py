from __future__ import annotations

from django.apps import AppConfig


class ListingsConfig(AppConfig):
    name = "listings"
