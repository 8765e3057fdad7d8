"""Parameters of an address: each known, given once, and text that can be stored and told."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from django.http import QueryDict
from rest_framework import serializers
from rest_framework.views import APIView

from ledger.domain.refusal import Invalid

AFTER = "after"
OF_PAGES = frozenset({"limit", "cursor"})
LENGTH_MAX = 2_000


class ParameterNoText(Invalid):
    """A parameter of the address is no text: it is not UTF-8, or holds U+0000."""


class ParameterTooLong(Invalid):
    """A parameter of the address is longer than 2,000 characters."""


class ParameterUnknown(Invalid):
    """The address has a parameter that is not known here: `parameters` says which.

    `known` are those that are; a name that is mistyped would otherwise narrow nothing.
    """


class ParameterRepeated(Invalid):
    """A parameter of the address is given twice: `parameters` says which."""


def check_parameters(
    query: QueryDict, raw: str, known: frozenset[str] | None, *, many: frozenset[str] = frozenset()
) -> None:
    """Refuse what no handler could take as it was meant.

    Args:
        raw: the query string as it was sent.
        known: what the handler describes that it takes; None: it is not described.
        many: those of them that may be given more than once.
    Raises: ParameterNoText, ParameterTooLong, ParameterUnknown, ParameterRepeated.
    """
    try:
        said = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterNoText() from None
    if "\0" in said:
        raise ParameterNoText()
    if known is not None and (unknown := sorted(set(query) - known)):
        shown = [name[:40] for name in unknown[:20]]
        raise ParameterUnknown(parameters=shown, known=sorted(known))
    for name, values in query.lists():
        if len(values) > 1 and name not in many:
            raise ParameterRepeated(parameters=[name])
        if any(len(value) > LENGTH_MAX for value in values):
            raise ParameterTooLong(parameters=[name], length_max=LENGTH_MAX)


_known: dict[tuple[type[APIView], str], frozenset[str] | None] = {}


def parameters_of(endpoint: type[APIView], method: str) -> frozenset[str] | None:
    """Return the parameters that a method of an endpoint takes, by its own description.

    One description for people and for the check: what `extend_schema` lists, what a list of many
    is paged with, and `after`. None: it is not described.
    """
    if (endpoint, method) not in _known:
        _known[endpoint, method] = _described(endpoint, method)
    return _known[endpoint, method]


def _described(endpoint: type[APIView], method: str) -> frozenset[str] | None:
    described = getattr(getattr(endpoint, method.lower()), "kwargs", {}).get("schema")
    if described is None:
        return None
    schema = described()
    schema.view = endpoint()
    schema.view.request, schema.view.kwargs, schema.method = None, {}, method
    named = frozenset(str(each.name) for each in schema.get_override_parameters())
    is_list = isinstance(schema.get_response_serializers(), serializers.ListSerializer)
    return named | {AFTER} | (OF_PAGES if is_list and method == "GET" else frozenset())
