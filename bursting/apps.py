from __future__ import annotations

from django.apps import AppConfig


class BurstingConfig(AppConfig):
    name = "bursting"
