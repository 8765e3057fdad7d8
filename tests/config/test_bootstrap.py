"""`manage.py bootstrap` registers the platform once; what a later start says is compared to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from ledger.domain.parties import PLATFORM_ID, Tenant
from ledger.eventstore import default_store
from ledger.eventstore.port import load

pytestmark = pytest.mark.django_db


def title() -> str:
    platform = load(default_store(), Tenant, PLATFORM_ID)
    assert platform is not None
    return platform.registered.title


def test_the_platform_keeps_the_name_that_it_was_given_whoever_starts_it_again() -> None:
    call_command("bootstrap", title="Northwind GPU Exchange")
    head = default_store().head()

    call_command("bootstrap")  # as `manage.py up` and offpeak-setup.service do at each start
    call_command("bootstrap", title="Northwind GPU Exchange")

    assert title() == "Northwind GPU Exchange"
    assert default_store().head() == head


def test_without_a_name_it_has_that_of_the_product() -> None:
    call_command("bootstrap")

    assert title() == "Offpeak"


def test_another_name_is_refused_and_the_present_one_told() -> None:
    call_command("bootstrap", title="Northwind")

    with pytest.raises(CommandError, match="'Northwind' already"):
        call_command("bootstrap", title="Southwind")


def test_another_currency_is_refused_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("bootstrap")
    monkeypatch.setattr(settings, "ENV", replace(settings.ENV, currency="EUR"))

    with pytest.raises(CommandError, match="OFFPEAK_CURRENCY says EUR"):
        call_command("bootstrap")
