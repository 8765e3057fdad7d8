from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.marketplace.cli.pretending import Market, pretending


@pytest.fixture
def market() -> Iterator[Market]:
    with pretending() as market:
        yield market
