"""Values of secrets are hidden in output, however it is cut, and other output is left alone."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.agent.runtimes.redacting import HIDDEN, LENGTH_MIN, Redacted, Redactor

VALUE = b'hf_AbC d/9+"x"=Z'
KEY = b"-----BEGIN KEY-----\nMIIBOgIBAAJBAKj34\nGkxFhDDuz7a9Q8Vw\n-----END KEY-----\n"
FORMS = [
    VALUE,
    quote(VALUE, safe="").encode(),
    quote_plus(VALUE).encode(),
    json.dumps(VALUE.decode())[1:-1].encode(),
    base64.b64encode(VALUE),
]


def shown(values: list[bytes], *chunks: bytes) -> bytes:
    redactor = Redactor(values)
    return b"".join([*(redactor.feed(chunk) for chunk in chunks), redactor.end()])


@pytest.mark.parametrize("form", FORMS)
def test_a_value_cut_anywhere_is_hidden(form: bytes) -> None:
    text = b"token=" + form + b" done\n"
    for cut in range(len(text) + 1):
        said = shown([VALUE], text[:cut], text[cut:])
        assert form not in said and said.startswith(b"token=" + HIDDEN), cut
        assert said.endswith(b" done\n")


def test_a_value_that_comes_byte_by_byte_is_hidden() -> None:
    text = b"a " + VALUE + b" b " + VALUE[:5] + b" c"

    said = shown([VALUE], *(text[place : place + 1] for place in range(len(text))))

    assert said == b"a " + HIDDEN + b" b " + VALUE[:5] + b" c"


@pytest.mark.parametrize("before", [b"", b"x", b"user:", b"ab"])
def test_base64_of_a_text_with_a_value_in_it_does_not_tell_it(before: bytes) -> None:
    encoded = base64.b64encode(before + VALUE + b"!")

    said = shown([VALUE], encoded)

    assert HIDDEN in said
    assert VALUE not in base64.b64decode(said.replace(HIDDEN, b"") + b"==")


def test_each_long_line_of_a_key_is_hidden() -> None:
    said = shown([KEY], b"1: MIIBOgIBAAJBAKj34\r\n2: GkxFhDDuz7a9Q8Vw\n", KEY)

    assert b"MIIBOg" not in said and b"GkxFh" not in said


def test_output_without_a_value_is_as_it_was_and_is_not_held_back() -> None:
    redactor = Redactor([VALUE])

    assert redactor.feed(b"step 1 loss 0.5\n") == b"step 1 loss 0.5\n"
    assert redactor.feed(b"progress h") == b"progress "
    assert redactor.feed(b"ello\n") == b"hello\n"


def test_short_values_are_not_looked_for() -> None:
    assert shown([b"1234", b"x" * (LENGTH_MIN - 1)], b"1234 xxxxxxx") == b"1234 xxxxxxx"
    assert shown([], b"anything") == b"anything"


def test_of_two_values_that_begin_alike_each_is_hidden() -> None:
    values = [b"password", b"password-of-ada"]

    assert shown(values, b"password-of-", b"ada password x") == HIDDEN + b" " + HIDDEN + b" x"


@given(st.binary(max_size=60), st.lists(st.integers(0, 90), max_size=4), st.binary(max_size=30))
def test_nothing_is_lost_nor_told_whatever_stands_around(
    before: bytes, cuts: list[int], after: bytes
) -> None:
    value = b"\x80secret-\xffvalue"
    text = before + value + after
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    chunks = [text[a:b] for a, b in pairwise(edges)]

    assert shown([value], *chunks) == text.replace(value, HIDDEN)


def test_what_is_held_back_is_passed_on_at_the_end_once() -> None:
    class Output:
        written = b""

        def write(self, data: bytes) -> None:
            self.written += data

    to = Output()
    redacted = Redacted(to, [VALUE])
    redacted.write(b"a " + VALUE[:9])
    assert to.written == b"a "
    redacted.end()
    redacted.end()
    assert to.written == b"a " + VALUE[:9]
