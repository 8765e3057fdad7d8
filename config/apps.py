from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """The composition root's place in Django: installs event store, storage, vault."""

    name = "config"
    label = "site"

    def ready(self) -> None:
        """Tell the ledger which store this process writes to, and where compiled kernels lie."""
        from django.conf import settings

        from config import checks  # noqa: F401  # registers itself
        from config.security.work_keys import work_keys
        from config.wiring import build_storage, build_store
        from ledger import eventstore
        from marketplace import kernels, storage, vault

        eventstore.install(lambda: build_store(settings.ENV))
        storage.install(lambda: build_storage(settings.ENV, settings.HOME))
        vault.install(lambda: vault.Vault(work_keys(settings.ENV, settings.HOME)))
        kernels.home = settings.KERNELS
