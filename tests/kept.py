"""Rows that are made once for all tests of a module: what each test adds is taken back after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction
from pytest_django.plugin import DjangoDbBlocker

_kept: list[Kept] = []


class Kept:
    """A transaction in which each test's own is a part; in the end it is rolled back."""

    def __init__(self, blocker: DjangoDbBlocker) -> None:
        self._blocker = blocker
        self._held = transaction.atomic()
        self._held.__enter__()
        # Each test's end closes its connection, and with it the transaction would be over.
        connection.close = lambda: None  # type: ignore[method-assign]
        _kept.append(self)

    def end(self) -> None:
        """Take everything back. Once more changes nothing."""
        if self not in _kept:
            return
        _kept.remove(self)
        del connection.close
        with self._blocker.unblock():
            transaction.set_rollback(True)
            self._held.__exit__(None, None, None)
            connection.close()


@contextmanager
def kept(blocker: DjangoDbBlocker) -> Iterator[Kept]:
    """Make rows inside, and keep them until `end`, which a module's fixture calls at its end."""
    with blocker.unblock():
        made = Kept(blocker)
        try:
            yield made
        except BaseException:
            made.end()
            raise


def end_kept(item: pytest.Item) -> None:
    """End what is kept before a test that commits: it needs the tables for itself."""
    mark = item.get_closest_marker("django_db")
    commits = mark is not None and mark.kwargs.get("transaction")
    if commits or "transactional_db" in getattr(item, "fixturenames", ()):
        for each in reversed(_kept):
            each.end()
