"""How far each follower of the event store has read."""

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
