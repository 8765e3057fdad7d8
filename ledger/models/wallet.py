"""Read models of wallets at the payment service; and, which no event tells, how asking it goes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class WalletRow(models.Model):
    """A wallet as the payment service knows it, and its rule for topping itself up.

    below_nanos: null where it has no rule. ended_because: why it has none any more.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    account_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(null=True, db_index=True)
    payer = models.CharField(max_length=80)
    below_nanos = models.BigIntegerField(null=True)
    amount_nanos = models.BigIntegerField(null=True)
    most_per_day_nanos = models.BigIntegerField(null=True)
    method = models.CharField(max_length=80)
    ended_because = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"wallet {self.account_id}"


class WalletPaymentRow(models.Model):
    """A top-up and how it stands: asked, open, succeeded, failed."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    payment_id = models.UUIDField(primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(null=True)
    state = models.CharField(max_length=10)
    way = models.CharField(max_length=10)
    method = models.CharField(max_length=80)
    nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reference = models.CharField(max_length=120)
    url = models.TextField()
    intent = models.CharField(max_length=80)
    reason = models.CharField(max_length=200)
    asked_by = models.UUIDField(null=True)
    asked_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["state", "asked_at"], name="ledger_top_up_by_state")]

    def __str__(self) -> str:
        return f"top-up {self.payment_id} {self.state}"


class WalletMethodRow(models.Model):
    """A card that the payment service keeps for a wallet: saved, or leaving."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    method = models.CharField(max_length=80, primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(null=True)
    label = models.CharField(max_length=120)
    state = models.CharField(max_length=10)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.label


class WalletRefundRow(models.Model):
    """A refund and how it stands: asked, approved, declined, paid, failed."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    refund_id = models.UUIDField(primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(null=True)
    nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=200)
    state = models.CharField(max_length=10)
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"refund {self.refund_id} {self.state}"


class WalletRefundPartRow(models.Model):
    """What of a refund goes back to one payment: approved, paid, failed."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    part_id = models.CharField(max_length=44, primary_key=True)
    refund_id = models.UUIDField(db_index=True)
    account_id = models.UUIDField()
    tenant_id = models.UUIDField(null=True)
    number = models.IntegerField()
    intent = models.CharField(max_length=80, db_index=True)
    nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    state = models.CharField(max_length=10, db_index=True)
    reference = models.CharField(max_length=80)
    reason = models.CharField(max_length=200)

    def __str__(self) -> str:
        return f"{self.part_id} {self.state}"


class WalletDisputeRow(models.Model):
    """A chargeback: open, won, lost."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    dispute = models.CharField(max_length=80, primary_key=True)
    account_id = models.UUIDField(db_index=True)
    tenant_id = models.UUIDField(null=True)
    intent = models.CharField(max_length=80)
    nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=200)
    state = models.CharField(max_length=10)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"dispute {self.dispute} {self.state}"


class PaymentNotice(models.Model):
    """Word from the payment service, kept once: new, done, ignored, given-up.

    about: the id of what it is about, which is asked itself.
    """

    notice = models.CharField(max_length=120, primary_key=True)
    kind = models.CharField(max_length=120)
    about = models.CharField(max_length=120)
    account = models.CharField(max_length=80)
    state = models.CharField(max_length=10)
    tries = models.IntegerField(default=0)
    again_at = models.DateTimeField()
    error = models.TextField(default="")
    received_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["state", "again_at"], name="ledger_notice_due")]

    def __str__(self) -> str:
        return f"{self.kind} {self.notice} {self.state}"


class PaymentCall(models.Model):
    """A call to the payment service that did not come about yet: when it is tried again.

    call: names what is asked. again_at null: it was given up, and somebody has to look.
    """

    call = models.CharField(max_length=120, primary_key=True)
    tries = models.IntegerField()
    again_at = models.DateTimeField(null=True)
    error = models.TextField()
    first_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.call}: {self.tries} tries"


class PaymentMovement(models.Model):
    """A line of our account at the payment service, and what it was found to be.

    difference: empty where the journal says the same; else its type, see `reconciling`.
    """

    movement = models.CharField(max_length=80, primary_key=True)
    kind = models.CharField(max_length=40)
    minor = models.BigIntegerField()
    fee_minor = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    source = models.CharField(max_length=80)
    intent = models.CharField(max_length=80)
    at = models.DateTimeField(db_index=True)
    difference = models.CharField(max_length=20)
    words = models.CharField(max_length=300)

    def __str__(self) -> str:
        return f"{self.kind} {self.movement}"


class PaymentReconciliation(models.Model):
    """A comparison of the journal with the payment service: of all from `since` to `until`.

    differences: each with type, words and id; open: how many of them somebody has to look at.
    """

    made_at = models.DateTimeField(db_index=True)
    since = models.DateTimeField()
    until = models.DateTimeField()
    compared = models.IntegerField()
    differences = models.JSONField(default=list)
    open = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d} to {self.until:%Y-%m-%d}: {self.open} open"
