"""Bank accounts are sealed: they open under their own id alone, and under the key of today."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ledger.bank_accounts import keep, opened, rewrap_details
from ledger.domain.bank_details import BankDetails
from ledger.domain.payees import DetailsMissing
from ledger.models import BankDetailsValue
from ledger.vault import Vault, VaultLocked

pytestmark = pytest.mark.django_db
DETAILS = BankDetails(name="Lab", iban="DE89370400440532013000", bic="COBADEFFXXX")
OLD, NEW = b"o" * 32, b"n" * 32


def test_what_was_kept_is_opened_again() -> None:
    vault, details_id = Vault(lambda: [OLD]), uuid4()
    keep(vault, uuid4(), details_id, DETAILS)
    assert opened(vault, [details_id]) == {details_id: DETAILS}
    with pytest.raises(DetailsMissing):
        opened(vault, [uuid4()])


def test_a_value_that_was_put_under_another_owner_opens_no_more() -> None:
    """Whoever can write to the database cannot have an owner's money sent to another account."""
    vault, mine, theirs = Vault(lambda: [OLD]), uuid4(), uuid4()
    keep(vault, uuid4(), mine, DETAILS)
    keep(vault, uuid4(), theirs, DETAILS)
    row = BankDetailsValue.objects.get(pk=mine)
    BankDetailsValue.objects.filter(pk=theirs).update(key=row.key, value=row.value)
    with pytest.raises(VaultLocked):
        opened(vault, [theirs])


def test_another_key_of_the_installation_wraps_them_anew() -> None:
    details_id = uuid4()
    keep(Vault(lambda: [OLD]), uuid4(), details_id, DETAILS)
    assert rewrap_details(Vault(lambda: [NEW])) == (0, 1)
    assert rewrap_details(Vault(lambda: [NEW, OLD])) == (1, 0)
    assert rewrap_details(Vault(lambda: [NEW, OLD])) == (0, 0)
    assert opened(Vault(lambda: [NEW]), [details_id]) == {details_id: DETAILS}
