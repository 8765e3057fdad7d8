"""How the API describes itself: what `Endpoint` does to every route, told to drf-spectacular."""

from __future__ import annotations

import inspect
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from rest_framework import serializers

from ledger.rest.cursors import LIMIT_DEFAULT, LIMIT_MAX
from ledger.rest.problems import MEDIA_TYPE

WRITES = ("POST", "PUT", "PATCH", "DELETE")
ALWAYS = {
    "401": "Nobody knows who asks.",
    "403": "The token, or the person's roles, do not allow it.",
    "404": "There is no such thing, or none that you may see.",
    "409": "A rule of the market refuses it.",
    "422": "What was sent does not make sense; `errors` says where.",
    "429": "Too many requests; `Retry-After` says when to come again.",
    "503": "It cannot be answered at the moment; ask again.",
}
OF_WRITES = {
    "400": "The body is no JSON.",
    "412": "It is not at the version that `If-Match` names any more.",
    "413": "The body is too large.",
    "415": "The body is not sent as application/json.",
    "425": "An agent sent what the server does not know of yet.",
}


class ApiSchema(AutoSchema):
    """Lists are `{data, next}`, refusals are problems, writes take an Idempotency-Key."""

    def _get_paginator(self) -> Any:
        return _Pages()

    def get_summary(self) -> str | None:
        """Return the first sentence of what the handler says it does."""
        said = inspect.getdoc(getattr(self.view, str(self.method).lower())) or ""
        return said.partition("\n\n")[0].replace("\n", " ").removesuffix(".") or None

    def _get_parameters(self) -> list[dict[str, Any]]:
        parameters = super()._get_parameters()
        own = _WRITE_HEADERS if self.method in WRITES else []
        return [*parameters, *own, _AFTER, _AFTER_HEADER]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies = super()._get_response_bodies(direction)
        if self.method == "DELETE" and "204" in bodies:
            # A deletion answers what it wrote, where the framework supposes nothing.
            written = self.get_response_serializers()
            answer = self._get_response_for_code(written, "200", direction=direction)  # type: ignore[no-untyped-call]  # drf-spectacular has no types here
            bodies = {"200": answer}
        problem = ResolvedComponent(  # type: ignore[no-untyped-call]  # nor here
            name="Problem", type=ResolvedComponent.SCHEMA, schema=PROBLEM, object="Problem"
        )
        self.registry.register_on_missing(problem)
        said = {**ALWAYS, **(OF_WRITES if self.method in WRITES else {})}
        for status, description in sorted(said.items()):
            bodies[status] = {
                "description": description,
                "content": {MEDIA_TYPE: {"schema": problem.ref}},
            }
        return dict(bodies)


class AmountSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # no types there
    """Amounts as they are sent: never below nothing; as they are answered: they may be."""

    target_class = "ledger.rest.fields.AmountField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the schema."""
        minus = "" if direction == "request" else "-?"
        pattern = rf"^{minus}[0-9]{{1,12}}(\.[0-9]{{1,9}})?$"
        return {"type": "string", "pattern": pattern, "example": "2.15"}


class CountSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # no types there
    """Whole numbers with their bounds."""

    target_class = "ledger.rest.fields.CountField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the schema."""
        field = self.target
        return {"type": "integer", "minimum": field.value_min, "maximum": field.value_max}


class DurationSchema(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # no types there
    """Lengths of time in whole seconds, with their bounds."""

    target_class = "ledger.rest.fields.DurationField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the schema."""
        seconds = self.target.seconds
        bounds = {"minimum": seconds.value_min, "maximum": seconds.value_max}
        return {"type": "integer", "description": "seconds", **bounds}


class _Pages:
    """What `ledger.rest.paginate` takes and answers."""

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the shape of one page."""
        cursor = {"type": ["string", "null"], "description": "`cursor` of the next page"}
        return {
            "type": "object",
            "properties": {"data": schema, "next": cursor},
            "required": ["data", "next"],
        }

    def get_schema_operation_parameters(self, view: object) -> list[dict[str, Any]]:
        """Return what a list is asked with."""
        limit = {
            "type": "integer",
            "minimum": 1,
            "maximum": LIMIT_MAX,
            "default": LIMIT_DEFAULT,
        }
        return [
            {"name": "limit", "in": "query", "schema": limit},
            {
                "name": "cursor",
                "in": "query",
                "description": "`next` of the page before",
                "schema": {"type": "string", "maxLength": 1000},
            },
        ]


_AFTER: dict[str, Any] = {
    "name": "after",
    "in": "query",
    "description": "wait until what was written up to this position is shown",
    "schema": {"type": "integer", "minimum": 0},
}
_AFTER_HEADER: dict[str, Any] = {
    "name": "Offpeak-After",
    "in": "header",
    "description": "as `after`; a repeat with the same Idempotency-Key may change it",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_WRITE_HEADERS: list[dict[str, Any]] = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "the same key again is answered the same and done once",
        "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    },
    {
        "name": "If-Match",
        "in": "header",
        "description": "the ETag that the change rests on; heeded where a GET answers one",
        "schema": {"type": "string", "pattern": r'^("[0-9]{1,18}"|\*)$'},
    },
]
_FIELD_PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pointer": {"type": "string", "description": "RFC 6901, into the body"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
    "required": ["pointer", "code", "detail"],
}
PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457. `code` is for programs and stays, `detail` is for people.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string"},
        "errors": {"type": "array", "items": _FIELD_PROBLEM},
        "details": {"type": "object", "additionalProperties": True},
        "advice": {"type": "string"},
        "request_id": {"type": "string", "format": "uuid"},
    },
    "required": ["type", "title", "status", "detail", "instance", "code", "request_id"],
}


class WrittenAt(serializers.Serializer[Any]):
    """The position to read a write at."""

    position = serializers.IntegerField()
