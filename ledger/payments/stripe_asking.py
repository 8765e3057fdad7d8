"""One call to Stripe, and what went wrong with it in our words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import stripe

from ledger.payments.port import CardDeclined, PaymentsAway, PaymentsRefused

COME_AGAIN = frozenset({409, 429})
PAGE_SIZE = 100

FoundT = TypeVar("FoundT")


def ask(call: Callable[[], FoundT]) -> FoundT:
    """Make one call and say in our words what went wrong with it.

    Raises: PaymentsAway, PaymentsRefused, CardDeclined.
    """
    try:
        return call()
    except stripe.CardError as declined:
        words = declined.user_message or "the card was declined"
        raise CardDeclined(declined.code or "declined", words) from None
    except (stripe.APIConnectionError, stripe.RateLimitError) as away:
        raise PaymentsAway(type(away).__name__) from None
    except stripe.StripeError as failure:
        status, words = failure.http_status or 500, failure.user_message or str(failure)
        if status >= 500 or status in COME_AGAIN:
            raise PaymentsAway(f"{status} {type(failure).__name__}") from None
        raise PaymentsRefused(failure.code or type(failure).__name__, words) from None


def id_of(value: Any) -> str:
    """Return the id of what may be given whole, by its id, or not at all."""
    return str(value["id"] if isinstance(value, dict) else value or "")
