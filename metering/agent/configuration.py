"""The agent's options from a file: the same names, without the dashes before them, in TOML.

What the command line says as well, it says instead of the file.
"""

from __future__ import annotations

import argparse
import difflib
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

PLACE = Path("/etc/offpeak-agent.toml")
"""Read where it is there and no other is named."""
NOT_IN_FILES = frozenset({"help", "version", "config", "once", "now", "json", "print"})
"""What is about one call."""


class ConfigUnfit(ValueError):
    """The file cannot be used; the text names it, and what would be right."""


def arguments_of(parser: argparse.ArgumentParser, given: Sequence[str]) -> list[str]:
    """Return the arguments with those of the configuration file before them.

    Raises: ConfigUnfit.
    """
    path = _named(given)
    if path is None:
        if not PLACE.exists():
            return list(given)
        path = PLACE
    return [*_from_file(parser, path, given), *given]


def _named(given: Sequence[str]) -> Path | None:
    for index, word in enumerate(given):
        if word == "--config" and index + 1 < len(given):
            return Path(given[index + 1])
        if word.startswith("--config="):
            return Path(word.partition("=")[2])
    return None


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {
        name[2:]: action
        for action in parser._actions
        for name in action.option_strings[-1:]
        if name.startswith("--") and name[2:] not in NOT_IN_FILES
    }


def _from_file(parser: argparse.ArgumentParser, path: Path, given: Sequence[str]) -> list[str]:
    try:
        text = path.read_bytes().decode()
        said = tomllib.loads(text)
    except OSError as error:
        raise ConfigUnfit(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigUnfit(f"{path} is no TOML: {error}") from None
    known = _options(parser)
    found: list[str] = []
    for key, value in said.items():
        action = known.get(key)
        if action is None:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigUnfit(f"{path}: there is no option {key!r}{hint}")
        name = f"--{key}"
        if isinstance(action, argparse._AppendAction) and any(
            word == name or word.startswith(f"{name}=") for word in given
        ):
            continue  # the command line says it instead
        found += _words(path, key, value, action)
    _check(parser, path, found)
    return found


def _words(path: Path, key: str, value: object, action: argparse.Action) -> list[str]:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ConfigUnfit(f"{path}: {key!r} is true or false, not {value!r}")
        return [f"--{key}"] if value else []
    many = isinstance(action, argparse._AppendAction)
    values = value if many and isinstance(value, list) else [value]
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int):
            what = "texts in brackets" if many else "a text or a whole number"
            raise ConfigUnfit(f"{path}: {key!r} is {what}, not {each!r}")
    return [f"--{key}={each}" for each in values]


def _check(parser: argparse.ArgumentParser, path: Path, words: Sequence[str]) -> None:
    """Refuse what an option would not take, and say that it is the file's."""
    actions = _options(parser)
    for word in words:
        key, is_valued, value = word[2:].partition("=")
        action = actions[key]
        if not is_valued:
            continue
        try:
            taken = parser._get_value(action, value)
        except argparse.ArgumentError as error:
            raise ConfigUnfit(f"{path}: {key!r}: {error.message}") from None
        if action.choices is not None and taken not in action.choices:
            choices = ", ".join(map(str, action.choices))
            raise ConfigUnfit(f"{path}: {key!r} is one of {choices}, not {value!r}")


def template(parser: argparse.ArgumentParser) -> str:
    """Return a file with every option, each with its default as a comment."""
    return "\n".join(_lines(parser)) + "\n"


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "# Offpeak's agent. Each option is the flag of the same name; what is commented out is"
    yield f"# as it is without a word. Read from {PLACE}, or --config FILE; flags go before it."
    for key, action in _options(parser).items():
        yield ""
        about = (action.help or "").strip()
        if action.choices is not None:
            about = f"{about}: one of {', '.join(map(str, action.choices))}".lstrip(": ")
        yield from _wrapped(about or key.replace("-", " "))
        yield f"# {key} = {_shown(key, action)}"


def _wrapped(text: str) -> Iterator[str]:
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > 98:
            yield line
            line = "#"
        line += f" {word}"
    yield line


def _shown(key: str, action: argparse.Action) -> str:
    if action.nargs == 0:
        return "false"
    default = action.default
    if isinstance(action, argparse._AppendAction):
        return "[]"
    if isinstance(default, tuple):
        return _quoted(",".join(map(str, default)))
    if isinstance(default, int):
        return str(default)
    if default is None:
        return '""    # nothing by default'
    if key == "hostname":
        return f"{_quoted(os.uname().nodename)}    # this host's own"
    return _quoted(str(default))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
