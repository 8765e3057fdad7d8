"""Set up the organisations of a market that journeys go through, and print everybody's tokens.

The people are those of the demo, who may be signed in with one click; nothing is listed and nothing
is bid.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid5


def main() -> None:
    """Do it through the real commands, with the settings of the installation."""
    from django.conf import settings

    from config.demo.cast import DEMO, PLATFORM, PLAYERS
    from config.demo.founding import found
    from config.demo.secrets import Secrets
    from config.demo.seeding import found_platform
    from ledger.commands.tokens import issue_token
    from ledger.domain import tokens
    from ledger.domain.ids import TokenId
    from ledger.eventstore import default_store
    from ledger.eventstore.port import Meta

    store, env, now = default_store(), settings.ENV, datetime.now(UTC)
    found_platform(store, env, now)
    found(store, home=settings.HOME, market=env.market, currency=env.currency, now=now)
    secrets = Secrets(settings.HOME)
    for player in PLATFORM.people:
        may = tokens.ROLES_OF_SCOPE.items()
        issue_token(
            store,
            token_id=TokenId(uuid5(DEMO, f"token:{player.email}")),
            tenant_id=PLATFORM.tenant_id,
            user_id=player.user_id,
            written=tokens.read(secrets.get(player.email, "user")),
            title="Journeys",
            scopes=[scope for scope, roles in may if roles & set(player.roles)],
            expires_at=None,
            by=Meta(actor="loop:journeys", tenant_id=PLATFORM.tenant_id),
            now=now,
        )
    people = {player.email: secrets.get(player.email, "user") for _, player in PLAYERS}
    print(json.dumps({email.partition("@")[0]: token for email, token in people.items()}))
