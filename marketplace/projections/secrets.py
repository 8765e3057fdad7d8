"""How secrets become rows: one for each that is kept, with where it last went."""

from __future__ import annotations

from typing import cast, get_args

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.secrets.events import (
    SecretEvent,
    SecretRemoved,
    SecretsDelivered,
    SecretSet,
)
from marketplace.models.secrets import SecretRow


def project_secrets(recorded: Recorded, rows: Rows) -> None:
    """Keep SecretRow equal to the streams of secrets and of their deliveries."""
    event = cast(SecretEvent | SecretsDelivered, recorded.event)
    match event:
        case SecretSet():
            given = {"version": event.version, "user_id": event.user_id, "set_at": event.at}
            if rows.find(SecretRow, event.secret_id) is None:
                own = {"tenant_id": event.tenant_id, "name": event.secret}
                rows.make(SecretRow, secret_id=event.secret_id, **own, **given)
            else:
                rows.change(SecretRow, event.secret_id, **given)
        case SecretRemoved():
            rows.remove(SecretRow, event.secret_id)
        case SecretsDelivered():
            went = {"delivered_at": event.at, "delivered_lease_id": event.lease_id}
            for each in event.secrets:
                if rows.find(SecretRow, each.secret_id) is not None:
                    rows.change(SecretRow, each.secret_id, **went)


PROJECTIONS = (
    Projection(
        name="marketplace.secrets",
        project=project_secrets,
        tables=(SecretRow,),
        on=names_of(*get_args(SecretEvent), SecretsDelivered),
    ),
)
