"""The documentation as pages of the site: Markdown under `config/docs/`, and the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import mark_safe

from config.site.manual import api_reference, markdown, reference

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE: dict[str, Callable[[], str]] = {
    "settings": reference.settings_page,
    "events": reference.events_page,
    "reference": api_reference.operations_page,
    "problems": reference.refusals_page,
}
DECISION = "decision-"


@dataclass(frozen=True, slots=True)
class Shelf:
    """Chapters for one kind of reader."""

    title: str
    about: str
    slugs: tuple[str, ...]


SHELVES = (
    Shelf(
        "Owners",
        "List GPUs and earn",
        ("tutorial-owner", "owners", "departures", "agent", "isolation"),
    ),
    Shelf(
        "Consumers",
        "Bid for GPUs and run work",
        (
            "tutorial-consumer",
            "clearing",
            "cli",
            "files",
            "logs",
            "volumes",
            "checkpoints",
            "secrets",
            "notifications",
            "access",
            "quotas",
            "metering",
        ),
    ),
    Shelf(
        "Finance",
        "Accounts, budgets, invoices and exports",
        ("tutorial-finance", "finance", "budgets", "invoices", "payouts", "payments"),
    ),
    Shelf(
        "Operators",
        "Run an installation",
        ("tutorial-operator", "operating", "settings", "bursting", "event-store", "scale"),
    ),
    Shelf(
        "Developers",
        "Programs that use the market",
        ("tutorial-developer", "api", "reference", "problems", "events"),
    ),
    Shelf(
        "Evidence",
        "Rounds, replays, departures and other rules",
        ("lab", "simulation", "measured-departures", "faults"),
    ),
)
OTHERS = Shelf("More", "Chapters of no one reader", ())
FOUND_MAX = 40
QUERY_CHARS_MAX = 100
SNIPPET_CHARS = 160


@dataclass(frozen=True, slots=True)
class Chapter:
    """One page of the manual. `html` is ours: made from files of this repository."""

    slug: str
    title: str
    html: str
    sections: tuple[markdown.Section, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in the manual that has what was searched for."""

    href: str
    chapter: str
    section: str
    snippet: str


@cache
def chapters() -> dict[str, Chapter]:
    """Return every chapter by its slug: guides, reference, then decisions by number."""
    texts = {path.stem: path.read_text() for path in sorted(DOCS.glob("*.md"))}
    texts |= {slug: page() for slug, page in REFERENCE.items()}
    texts |= {
        f"{DECISION}{path.stem}": path.read_text()
        for path in sorted((DOCS / "decisions").glob("*.md"))
    }
    return {slug: _chapter(slug, text) for slug, text in texts.items()}


def _chapter(slug: str, text: str) -> Chapter:
    """Return a text as a chapter; its first heading is shown as the page's own."""
    heading, _, body = text.partition("\n")
    rendered = markdown.render(body, drawings=DOCS)
    return Chapter(slug, heading.lstrip("# ").replace("`", ""), rendered.html, rendered.sections)


@cache
def shelves() -> list[tuple[Shelf, list[Chapter]]]:
    """Return every chapter but the decisions by who reads it, each once."""
    known = chapters()
    kept = [(shelf, [known[slug] for slug in shelf.slugs if slug in known]) for shelf in SHELVES]
    named = {slug for shelf in SHELVES for slug in shelf.slugs}
    others = [
        each for slug, each in known.items() if slug not in named and not slug.startswith(DECISION)
    ]
    return [*kept, (OTHERS, others)] if others else kept


def search(query: str) -> list[Hit]:
    """Return the sections that hold every word of `query`, those with one in a title first."""
    words = query.lower().split()
    if not words:
        return []
    ranked = sorted(_hits(words), key=lambda ranked: ranked[0])
    return [hit for _, hit in ranked[:FOUND_MAX]]


def _hits(words: list[str]) -> Iterator[tuple[tuple[bool, bool, bool], Hit]]:
    for chapter in chapters().values():
        for section in chapter.sections:
            told = f"{chapter.title} {section.title} {section.text}".lower()
            if not all(word in told for word in words):
                continue
            own = f"{section.title} {section.text}".lower()
            if not any(word in own for word in words) and section.anchor:
                continue  # the chapter's title alone says it, once is enough
            rank = (
                chapter.slug.startswith(DECISION),
                not all(word in section.title.lower() for word in words),
                not all(word in chapter.title.lower() for word in words),
            )
            anchor = f"#{section.anchor}" if section.anchor else ""
            href = f"/docs/{chapter.slug}/{anchor}"
            yield rank, Hit(href, chapter.title, section.title, _snippet(section.text, words))


def _snippet(text: str, words: list[str]) -> str:
    """Return the part of a text around the first word that it has."""
    lower = text.lower()
    places = [place for word in words if (place := lower.find(word)) >= 0]
    start = max(0, min(places, default=0) - SNIPPET_CHARS // 3)
    start = text.rfind(" ", 0, start) + 1 if start else 0
    end = start + SNIPPET_CHARS
    if end < len(text):
        end = max(text.rfind(" ", start, end), start + SNIPPET_CHARS // 2)
    return f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"


def contents(request: HttpRequest) -> HttpResponse:
    """Show the table of contents, or what was found in the manual."""
    query = " ".join(request.GET.get("q", "").split())[:QUERY_CHARS_MAX]
    decisions = [each for slug, each in chapters().items() if slug.startswith(DECISION)]
    context = {
        "shelves": shelves(),
        "decisions": decisions,
        "query": query,
        "hits": search(query),
        "hits_max": FOUND_MAX,
    }
    return render(request, "docs/contents.html", context)


def chapter(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one chapter."""
    found = chapters().get(slug)
    if found is None:
        raise Http404
    context = {
        "chapter": found,
        "sections": [each for each in found.sections if each.anchor and each.title],
        "html": mark_safe(found.html),  # from this repository, raw HTML off
    }
    return render(request, "docs/chapter.html", context)
