"""Answers as JSON that can always be written, whatever text they quote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.renderers import JSONRenderer


class PlainJson(JSONRenderer):
    """JSON in UTF-8; half of a surrogate pair, which UTF-8 lacks, is written as JSON's escape."""

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the answer's bytes."""
        try:
            return bytes(super().render(data, accepted_media_type, renderer_context))
        except UnicodeEncodeError:
            return bytes(_Escaping().render(data, accepted_media_type, renderer_context))


class _Escaping(JSONRenderer):
    ensure_ascii = True
