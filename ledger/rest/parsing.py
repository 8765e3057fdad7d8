"""Request bodies: JSON as RFC 8259 has it and no more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.parsers import BaseParser

from ledger.domain.refusal import Refusal

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no text may hold: it could be neither stored nor quoted in an answer."""
_SURROGATE = re.compile("[\ud800-\udfff]")


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

        Raises: BodyUnreadable; ValidationError, which names each text that is none.
        """
        try:
            found = json.loads(
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
        if wrong := _wrong_texts(found):
            raise ValidationError(wrong)
        return found


def _wrong_texts(value: Any) -> Any:
    """Return what is wrong with the texts of a body, laid out as the body is; empty: nothing.

    Here, before any field sees them: a field that refuses a value quotes it.
    """
    match value:
        case str() if _NO_TEXT.search(value):
            half = _SURROGATE.search(value) is not None
            code = "surrogate-characters-not-allowed" if half else "null-characters-not-allowed"
            what = "half of a surrogate pair" if half else "U+0000"
            return [ErrorDetail(f"This holds {what}, which is no text.", code)]
        case dict():
            inside = {name: _wrong_texts(each) for name, each in value.items()}
        case list():
            inside = {str(index): _wrong_texts(each) for index, each in enumerate(value)}
        case _:
            return {}
    return {name: wrong for name, wrong in inside.items() if wrong}


def _refuse_constant(name: str) -> NoReturn:
    raise BodyUnreadable(reason=f"{name} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BodyUnreadable(reason="a name is used twice in one object")
    if any(_NO_TEXT.search(name) for name in found):
        raise BodyUnreadable(reason="a name holds U+0000 or half of a surrogate pair")
    return found
