"""How far each follower of the event store has read, and what it could not carry out yet."""

from __future__ import annotations

from django.db import models


class Checkpoint(models.Model):
    """How far one follower has read. Moves in the transaction that wrote its rows."""

    name = models.CharField(max_length=128, primary_key=True)
    position = models.BigIntegerField(default=0)
    moved_at = models.DateTimeField(null=True)
    error = models.TextField(default="")
    """Why it stopped; empty while it runs."""

    def __str__(self) -> str:
        return f"{self.name}@{self.position}"


class ParkedReaction(models.Model):
    """An event that a policy could not react to, or that waits behind one of the same subject.

    It is tried again, less and less often; all other events go on meanwhile.
    """

    policy = models.CharField(max_length=128)
    position = models.BigIntegerField()
    stream = models.CharField(max_length=200)
    version = models.BigIntegerField()
    type = models.CharField(max_length=128)
    subject = models.CharField(max_length=200)
    """What the event is about: those of one subject are reacted to in their order."""
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(default="")
    """Why it failed last; empty while it waits behind another."""
    parked_at = models.DateTimeField()
    again_at = models.DateTimeField(null=True)
    """When it is tried again; null while it waits behind another."""

    class Meta:
        app_label = "ledger"
        constraints = [
            models.UniqueConstraint(fields=["policy", "position"], name="parked_once"),
        ]
        indexes = [
            models.Index(fields=["again_at"], name="parked_again_at"),
            models.Index(fields=["policy", "subject", "position"], name="parked_by_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.policy}: {self.type}@{self.position}"
