"""Text that people may read later, without the secrets that slipped into it.

What should never hold a secret (a log, an error that is kept, a page about a failure) goes through
here all the same: libraries quote what they were given. Shapes are told by what surrounds a
secret (a token's prefix, a URL, the name of a field), so one that nobody has seen is hidden too.
Hiding too much is the error to make: a log that says [hidden] is still read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Match
from urllib.parse import quote, quote_plus

HIDDEN = "[hidden]"
KNOWN_LENGTH_MIN = 6
"""Shorter secrets than this would hide half of every text."""

# A name such as DATABASE_PASSWORD, client_secret or X-Api-Key. Not `token_id`, `key` or `tokens`.
_NAMES = (
    r"(?:password|passwd|passphrase|pwd|passcode|otp|secret|secret[_-]?key|client[_-]?secret"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key|session[_-]?(?:id|key)"
    r"|csrf[_-]?token|csrfmiddlewaretoken|authorization|cookie|credentials?|token)"
)
NAMED = re.compile(rf"[\w.-]*{_NAMES}[0-9]?", re.IGNORECASE)
"""What the whole name of a field looks like whose value is a secret."""

# A quoted value, in the quotes of Python, JSON, libpq (which doubles them), or JSON within JSON.
_QUOTED = r"""(?P<quote>\\*["'])(?:''|(?!(?P=quote))\\.|(?!(?P=quote))[^\\\n])*(?:(?P=quote))?"""
# As it stands in an address or in HTML.
_ESCAPED = r"""(?:%(?:25)*2[27]|&(?:amp;)?(?:\#x27|\#39|\#34|quot);)"""
_IS = (
    rf"""(?:\\*["']|{_ESCAPED})?\s*"""
    r"""(?:=>|=|:|%(?:25)*3[AD]|,(?=\s*b?\\*["']))\s*(?:b(?=["']))?"""
)
# Several values of one name, as forms have them: {'password': ['one', 'two']}.
_SEVERAL = r"""[\[({](?!hidden\])[^\])}\n]*[\])}]?"""
_NAMED_VALUE = re.compile(
    rf"""(?P<name>{_NAMES}[0-9]?{_IS})"""
    rf"""(?P<value>{_QUOTED}|{_ESCAPED}.*?(?:{_ESCAPED}|$)|{_SEVERAL}"""
    rf"""|(?:[^\s&'"<>\\]|\\(?!["']))+)""",
    re.IGNORECASE,
)
# A header's value is all of its line, whatever its scheme.
_HEADER_VALUE = re.compile(
    rf"""(?P<name>(?:authorization|cookie){_IS})(?P<value>{_QUOTED}|[^\r\n"'\\]+)""",
    re.IGNORECASE,
)

_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    # Ours. The first six characters are shown on pages too, so that people can tell tokens apart.
    (re.compile(r"(offp_[a-z]+_[0-9A-Za-z]{6})[0-9A-Za-z_]+"), rf"\1{HIDDEN}"),
    # A password in a URL, up to the last @: people forget to escape one.
    (re.compile(r"""(\b[a-z][a-z0-9+.-]*://[^\s:/"'<>]*):[^\s"'<>]*@""", re.I), rf"\1:{HIDDEN}@"),
    (re.compile(r"(\bpassword\s+)'(?:''|[^'])*'?", re.I), rf"\1{HIDDEN}"),  # as in SQL
    (re.compile(r"\b(bearer)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(basic)\s+[A-Za-z0-9+/]{8,}={0,2}(?=$|[\s\"'])", re.I), rf"\1 {HIDDEN}"),
    # Stripe, Amazon, Google, GitHub, Slack; JSON web tokens; keys in PEM.
    (re.compile(r"\b((?:sk|rk|pk)_(?:live|test)|whsec)_[\w+/=-]+"), rf"\1_{HIDDEN}"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"), HIDDEN),
    (re.compile(r"\bAIza[\w-]{30,}|\bgh[a-z]_\w{20,}|\bxox[a-z]-[\w-]{10,}"), HIDDEN),
    # GitHub's newer ones, and what the work of consumers has with it: Hugging Face, model makers.
    (re.compile(r"\bgithub_pat_\w{20,}|\bhf_[0-9A-Za-z]{20,}|\bsk-[\w-]{16,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), HIDDEN),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S),
        HIDDEN,
    ),
)
_QUICK = re.compile(
    r"offp_|://|[=:]|bearer|basic|password|sk_|rk_|pk_|whsec|AKIA|ASIA|AIza|gh[a-z]_|xox|eyJ|"
    r"github_pat|hf_|sk-|%(?:25)*3[ad]|"
    r"PRIVATE KEY|authorization|cookie",
    re.IGNORECASE,
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """Return `text` with everything hidden that looks like a secret, and the `known` ones.

    known: as `spellings` gives them.
    """
    for secret in known:
        text = text.replace(secret, HIDDEN)
    if _QUICK.search(text) is None:
        return text
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return _NAMED_VALUE.sub(_hide_value, _HEADER_VALUE.sub(_hide_value, text))


def _hide_value(found: Match[str]) -> str:
    name, value, quote_mark = found["name"], found["value"], found["quote"] or ""
    if value.strip("\\\"'").startswith(HIDDEN[:-1]):
        return found[0]
    return f"{name}{quote_mark}{HIDDEN}{quote_mark}"


def is_secret_name(name: str) -> bool:
    """Tell if the value that goes by this name is a secret."""
    return NAMED.fullmatch(name) is not None


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return how each secret may stand in a text, the longest first."""
    found = {
        form
        for secret in secrets
        if len(secret) >= KNOWN_LENGTH_MIN
        for form in (secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1])
    }
    return tuple(sorted(found, key=len, reverse=True))
