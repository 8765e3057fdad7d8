"""Who can sign in. Credentials are no facts of the market, so they are not events."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import uuid4

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.db import models


class People(BaseUserManager["Person"]):
    """Makes persons; e-mail addresses are compared in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> Person:
        """Keep a new person; without a password they can only sign in another way."""
        person = self.model(email=email.strip().lower(), **fields)
        person.set_password(password)
        person.save(using=self._db)
        return person

    def get_by_natural_key(self, username: str | None) -> Person:
        """Find a person by e-mail address, however it is capitalised."""
        return self.get(email=(username or "").lower())


class Person(AbstractBaseUser):
    """An end user. `id` is the `user_id` of every event; what they may do, `MemberRow` says."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    email = models.EmailField(unique=True)
    title = models.CharField(max_length=120, default="")
    is_active = models.BooleanField(default=True)
    is_demo = models.BooleanField(default=False)
    """One of the demo's made-up people: may be signed in by one click where `demo` is on."""
    vouched_by = models.UUIDField(null=True)
    """The organisation whose link, shown to its operator, made this log-in. Nothing else says that
    the address is the person's, so no other organisation admits them without asking them first."""
    joined_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[People] = People()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    def __str__(self) -> str:
        return self.title or self.email

    def get_full_name(self) -> str:
        """Return how the person is called on pages."""
        return str(self)
