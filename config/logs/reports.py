"""Django's own pages and mails about a failure: a debug market shows them, on loopback only.

They tell where and why, and the values of no variable: those are tokens, passwords and people's
data, and a page is easily copied into a report.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter

from ledger.domain.redaction import HIDDEN, is_secret_name, redact


class NothingOfOurs(SafeExceptionReporterFilter):
    """Shows no variable of a frame, nothing that was posted, and no secret of the settings."""

    def is_active(self, request: HttpRequest | None) -> bool:
        """Filter in debug mode too."""
        return True

    def cleanse_setting(self, key: str | int, value: Any) -> Any:
        """Hide by name, and by the shape of what is left."""
        if isinstance(key, str) and is_secret_name(key):
            return HIDDEN
        cleansed = super().cleanse_setting(key, value)
        return redact(cleansed) if isinstance(cleansed, str) else cleansed

    def get_post_parameters(self, request: HttpRequest | None) -> Any:
        """Return the names of what was posted."""
        return {} if request is None else dict.fromkeys(request.POST, HIDDEN)

    def get_traceback_frame_variables(
        self, request: HttpRequest | None, tb_frame: FrameType
    ) -> Any:
        """Return none."""
        return []
