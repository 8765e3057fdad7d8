"""The documentation as pages of the site: Markdown under `config/docs/`, and the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from config import reference

DOCS = Path(__file__).resolve().parent / "docs"
REFERENCE: dict[str, Callable[[], str]] = {
    "settings": reference.settings_page,
    "events": reference.events_page,
    "problems": reference.refusals_page,
}


@dataclass(frozen=True, slots=True)
class Chapter:
    """One page of the manual. `html` is ours: made from files of this repository."""

    slug: str
    title: str
    html: str


@cache
def chapters() -> dict[str, Chapter]:
    """Return every chapter by its slug: guides, reference, then decisions by number."""
    texts = {path.stem: path.read_text() for path in sorted(DOCS.glob("*.md"))}
    texts |= {slug: page() for slug, page in REFERENCE.items()}
    texts |= {
        f"decision-{path.stem}": path.read_text()
        for path in sorted((DOCS / "decisions").glob("*.md"))
    }
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", _drawing)
    return {
        slug: Chapter(
            slug,
            text.partition("\n")[0].lstrip("# ").replace("`", ""),
            markdown.render(_body(text)),
        )
        for slug, text in texts.items()
    }


def _drawing(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType
) -> str:
    """Put a drawing of the manual into the page itself, so that it needs no address of its own.

    What it shows is told by its own title and description.
    """
    name = str(tokens[at].attrs["src"])
    path = (DOCS / name).resolve()
    if path.suffix != ".svg" or not path.is_relative_to(DOCS):
        return renderer.image(tokens, at, options, env)
    return path.read_text()


def _body(text: str) -> str:
    """Return the text without its first heading, which the page shows as its own."""
    return text.partition("\n")[2]


def contents(request: HttpRequest) -> HttpResponse:
    """Show the table of contents."""
    return render(request, "docs/contents.html", {"chapters": list(chapters().values())})


def chapter(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one chapter."""
    found = chapters().get(slug)
    if found is None:
        raise Http404
    context = {
        "chapter": found,
        "chapters": list(chapters().values()),
        "html": mark_safe(found.html),  # from this repository, raw HTML off
    }
    return render(request, "docs/chapter.html", context)
