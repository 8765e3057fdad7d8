"""An owner's account at Stripe: asked for, made there, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from ledger.domain.connect_events import (
    AccountAtStripeEvent,
    ConnectedState,
    StripeAccountAsked,
    StripeAccountMade,
    StripeAccountSeen,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """An account at Stripe as it stands. connected: its id there; empty: it is being made."""

    asked: StripeAccountAsked
    connected: str = ""
    state: ConnectedState = "asked"
    missing: tuple[str, ...] = ()
    words: str = ""

    @classmethod
    def evolve(cls, state: Connected | None, event: AccountAtStripeEvent, /) -> Connected:
        """Return the account after `event`."""
        match event:
            case StripeAccountAsked():
                return cls(asked=event)
            case StripeAccountMade():
                assert state is not None, "it was asked for"
                return replace(state, connected=event.connected, state="details-missing")
            case StripeAccountSeen():
                assert state is not None, "it was made"
                return replace(state, state=event.state, missing=event.missing, words=event.words)
            case _:
                assert_never(event)
