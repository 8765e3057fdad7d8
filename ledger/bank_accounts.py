"""Bank accounts of owners, sealed apart from the record: kept, opened for a file, wrapped anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from uuid import UUID

from ledger.domain.bank_details import BankDetails
from ledger.domain.payees import DetailsMissing
from ledger.models import BankDetailsValue
from ledger.vault import Sealed, Vault, VaultLocked


def keep(vault: Vault, account_id: UUID, details_id: UUID, details: BankDetails) -> None:
    """Seal a bank account under an id of its own."""
    sealed = vault.seal(_label(account_id, details_id), json.dumps(asdict(details)).encode())
    BankDetailsValue.objects.create(
        details_id=details_id,
        account_id=account_id,
        master=sealed.master,
        key=sealed.key,
        value=sealed.value,
    )


def _label(account_id: UUID, details_id: UUID) -> bytes:
    return f"bank-details {account_id} {details_id}".encode()


def opened(vault: Vault, details_ids: Sequence[UUID]) -> dict[UUID, BankDetails]:
    """Return bank accounts, to write a file with. Raises: DetailsMissing, VaultLocked."""
    rows = BankDetailsValue.objects.in_bulk(list(details_ids))
    found = {}
    for details_id in details_ids:
        row = rows.get(details_id)
        if row is None:
            raise DetailsMissing(details_id=details_id)
        sealed = Sealed(row.master, bytes(row.key), bytes(row.value))
        value = vault.open(_label(row.account_id, details_id), sealed)
        found[details_id] = BankDetails(**json.loads(value))
    return found


def rewrap_details(vault: Vault) -> tuple[int, int]:
    """Wrap all bank accounts with the installation's current key.

    Returns: how many that were, and how many open with no key.
    """
    done, locked, current = 0, 0, vault.current()
    for row in BankDetailsValue.objects.exclude(master=current).iterator():
        label = _label(row.account_id, row.details_id)
        try:
            sealed = vault.rewrap(label, Sealed(row.master, bytes(row.key), bytes(row.value)))
        except VaultLocked:
            locked += 1
            continue
        done += BankDetailsValue.objects.filter(pk=row.pk, master=row.master).update(
            master=sealed.master, key=sealed.key
        )
    return done, locked
