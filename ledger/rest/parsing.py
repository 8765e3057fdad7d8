"""Request bodies: JSON as RFC 8259 has it and no more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.parsers import BaseParser

from ledger.domain.refusal import Refusal

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no name may hold: it could be neither stored nor quoted in an answer."""


class BodyUnreadable(Refusal):
    """The body is not valid JSON.

    `reason` says where it went wrong. NaN, Infinity and a name used twice are no JSON either.
    """

    status = 400


class StrictJson(BaseParser):
    """Parses application/json; refuses NaN, repeated names and what nests too deep."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body as Python values.

        Raises: BodyUnreadable.
        """
        try:
            return json.loads(
                stream.read().decode("utf-8"),
                parse_constant=_refuse_constant,
                object_pairs_hook=_object,
            )
        except UnicodeDecodeError as failure:
            raise BodyUnreadable(reason="it is not UTF-8") from failure
        except RecursionError as failure:
            raise BodyUnreadable(reason="it nests too deep") from failure
        except json.JSONDecodeError as failure:
            where = f"line {failure.lineno} column {failure.colno}"
            raise BodyUnreadable(reason=f"{failure.msg} at {where}") from failure
        except ValueError as failure:  # a whole number of thousands of digits
            raise BodyUnreadable(reason="a number is too long") from failure


def _refuse_constant(name: str) -> NoReturn:
    raise BodyUnreadable(reason=f"{name} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BodyUnreadable(reason="a name is used twice in one object")
    if any(_NO_TEXT.search(name) for name in found):
        raise BodyUnreadable(reason="a name holds U+0000 or half of a surrogate pair")
    return found
