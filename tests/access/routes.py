"""Every route of the site, flat, and how to ask for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.urls import URLPattern, URLResolver, get_resolver

from ledger.rest import Endpoint

_PARAMETER = re.compile(r"<(?:(\w+):)?(\w+)>")


@dataclass(frozen=True)
class Route:
    """One pattern and its view. text: the pattern as written, without a leading slash."""

    text: str
    view: Any

    @property
    def is_api(self) -> bool:
        return self.text.startswith("api/")

    @property
    def endpoint(self) -> type[Endpoint] | None:
        """Return the handler's class, or None for a view of another kind."""
        kind = getattr(self.view, "view_class", None) or getattr(self.view, "cls", None)
        return kind if isinstance(kind, type) and issubclass(kind, Endpoint) else None

    @property
    def parameters(self) -> list[str]:
        return [name for _, name in _PARAMETER.findall(self.text)]

    def path(self, ids: Mapping[str, UUID | str]) -> str:
        return "/" + _PARAMETER.sub(lambda match: str(ids[match[2]]), self.text)


def all_routes() -> list[Route]:
    return sorted(_walk(get_resolver().url_patterns, ""), key=lambda route: route.text)


def _walk(patterns: Iterable[URLPattern | URLResolver], before: str) -> Iterator[Route]:
    for each in patterns:
        text = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _walk(each.url_patterns, text)
        else:
            yield Route(text, each.callback)
