"""How values of options are read: each reader raises argparse's error with what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def saying(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse print what a reader of an option says: of other errors it drops the text."""

    def reading(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return reading


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number above 0, not {text!r}")
    return int(text)


def days(text: str) -> int:
    return 0 if text == "0" else positive(text)


def folder(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or not path.is_dir():
        raise argparse.ArgumentTypeError(f"an existing folder from the root on, not {text!r}")
    return path


def file(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or not path.is_file():
        raise argparse.ArgumentTypeError(f"an existing file from the root on, not {text!r}")
    return path
