"""A small API for tests of the conventions: a note is kept as a unit of the asking tenant."""

from __future__ import annotations

import threading
from typing import Any, ClassVar
from uuid import UUID, uuid5

from django.urls import path
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.access import visible
from ledger.domain.events import SubscriberRegistered
from ledger.domain.ids import SubscriberId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, record
from ledger.models import SubscriberRow
from ledger.rest import (
    AmountField,
    Body,
    CountField,
    DurationField,
    Endpoint,
    MomentField,
    TextField,
    etag_of,
)


class Notes:
    """A tenant's notes, as the probe's aggregate."""

    STREAM: ClassVar[str] = "probe"

    def __init__(self, texts: tuple[str, ...] = ()) -> None:
        self.texts = texts

    @classmethod
    def evolve(cls, state: Notes | None, event: Any, /) -> Notes:
        before = state.texts if state else ()
        return cls((*before, getattr(event, "title", "")))


class NoteRefused(Refusal):
    """That note is not wanted.

    Write another.
    """


def keep_note(store: EventStore, *, by: Meta, text: str) -> Position:
    assert by.tenant_id is not None
    tenant_id = by.tenant_id

    def decide(notes: Notes | None) -> list[SubscriberRegistered]:
        if text == "refused":
            raise NoteRefused(notes=len(notes.texts) if notes else 0)
        unit = SubscriberId(uuid5(tenant_id, text))
        return [
            SubscriberRegistered(
                tenant_id=tenant_id,  # type: ignore[arg-type]
                subscriber_id=unit,
                title=text,
                cost_centre="",
                at=timezone.now(),
            )
        ]

    return record(store, Notes, tenant_id, decide, by=by)


class KeepNote(Body):
    text = TextField(max_length=50)
    price = AmountField(required=False)
    at = MomentField(required=False)
    count = CountField(required=False, value_min=1, value_max=9)
    length = DurationField(required=False, seconds_min=60, seconds_max=3600)


class Probe(Endpoint):
    scopes = {"GET": "bids:read", "POST": "bids:write"}
    reads = ("probe",)

    entered = threading.Event()
    """Set when a note `slow` is being kept; the handler then waits for `go_on`."""
    go_on = threading.Event()

    def get(self, request: Request) -> Response:
        rows = visible(self.actor, SubscriberRow)
        return self.page(rows, lambda row: row.title, ("cost_centre", "-subscriber_id"))

    def post(self, request: Request) -> Response:
        asked = self.body(KeepNote)
        if asked["text"] == "slow":
            self.entered.set()
            assert self.go_on.wait(10)
        store = self.store(f"probe-{self.actor.tenant_id}")
        position = keep_note(store, by=self.meta(), text=asked["text"])
        if asked["text"] == "broken":
            raise RuntimeError("secret inside")
        at = MomentField().to_representation(asked["at"]) if "at" in asked else None
        answer = {"position": position, "secret": "hush", "at": at}
        return Response(answer, status=201, headers={"ETag": etag_of(1)})


class SecretProbe(Probe):
    scopes = Probe.scopes
    secret_fields = frozenset({"secret"})


class AgentProbe(Endpoint):
    scopes = {"GET": "agent"}

    def get(self, request: Request, host_id: UUID | None = None) -> Response:
        return Response({"host": str(self.actor.host_id)})


urlpatterns = [
    path("api/v1/notes", Probe.as_view()),
    path("api/v1/secrets", SecretProbe.as_view()),
    path("api/v1/agent", AgentProbe.as_view()),
]
handler404 = "config.web.errors.not_found"
handler500 = "config.web.errors.server_error"
handler400 = "config.web.errors.bad_request"
