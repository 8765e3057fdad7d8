"""Work out anew how long a lease runs at least, apart from what chose who gives way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from listings.domain.gpus import model_of
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted

NAME_CHARS = 64
"""A name of models that is as long may be cut off: then all that is set may be about the lease."""


def least_run(book: Book, lease: LeaseGranted) -> timedelta:
    """Return how long a lease runs at least: as long as any of its GPUs is promised."""
    everywhere, by_class = book.least_runs.seconds, book.least_runs.classes
    if len(lease.gpu_model) >= NAME_CHARS:
        return timedelta(seconds=max(everywhere, *(each for _, each in by_class), everywhere))
    longest = 0
    for model in _models(lease.gpu_model):
        promised, narrowest = everywhere, (-1, -1)
        for gpu_class, seconds in by_class:
            how_narrow = _names(gpu_class, model)
            if how_narrow is None or how_narrow < narrowest:
                continue
            promised = max(promised, seconds) if how_narrow == narrowest else seconds
            narrowest = how_narrow
        longest = max(longest, promised)
    return timedelta(seconds=longest)


def _names(gpu_class: str, model: str) -> tuple[int, int] | None:
    """Return how narrowly a class names a model, a part before its card; None: it does not."""
    named, there = gpu_class.split("-"), model_of(model).split("-")
    if named[0] != there[0] or not set(named) <= set(there):
        return None
    # Of normal names only the words for parts, profiles and sizes, are in lower case.
    return int(any(word != word.upper() for word in named)), len(gpu_class)


def _models(together: str) -> Iterator[str]:
    """Yield the models of a name such as H100-80GB-1g.10gb+me+L4."""
    model = ""
    for piece in together.split("+"):
        if model and piece[:1].islower():
            model += f"+{piece}"
            continue
        if model:
            yield model
        model = piece
    yield model
