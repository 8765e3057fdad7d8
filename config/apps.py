from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """The composition root's place in Django: installs event store, storage, vault."""

    name = "config"
    label = "site"

    def ready(self) -> None:
        """Tell the ledger where this process writes and what closing a month takes, and more."""
        from django.conf import settings

        from config import checks  # noqa: F401  # registers itself
        from config.money import build_payments
        from config.payout_terms import payout_debtor, payout_terms
        from config.security.work_keys import work_keys
        from config.wiring import CLOSING_CHECKS, build_storage, build_store, legs_compared
        from ledger import (
            closing,
            eventstore,
            export_delivery,
            exporting,
            paying,
            payments,
            reconciling,
            vault,
        )
        from ledger.connect import notices
        from marketplace import kernels, storage

        eventstore.install(lambda: build_store(settings.ENV))
        closing.install(CLOSING_CHECKS)
        exporting.keep_in(settings.HOME / "exports")
        export_delivery.bring_to(settings.ENV.exports_to)
        payments.install(lambda: build_payments(settings.ENV))
        notices.listen()
        paying.install(payout_terms(settings.ENV), payout_debtor(settings.ENV))
        reconciling.install(legs_compared(settings.ENV))
        storage.install(lambda: build_storage(settings.ENV, settings.HOME))
        vault.install(lambda: vault.Vault(work_keys(settings.ENV, settings.HOME)))
        kernels.home = settings.KERNELS
