"""Read model of what accounts had when money last came in, and what was told since."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class AccountWatchRow(models.Model):
    """there_nanos: what could be set aside when money last came in, or the limit was last set.

    level, depletes: what its people were told (`ledger/domain/depletion.py`); told_at: of a level.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    account_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(null=True, db_index=True)
    there_nanos = models.BigIntegerField()
    level = models.PositiveSmallIntegerField(default=0)
    depletes = models.BooleanField(default=False)
    told_at = models.DateTimeField(null=True)

    class Meta:
        app_label = "ledger"

    def __str__(self) -> str:
        return f"{self.account_id} {self.level}"
