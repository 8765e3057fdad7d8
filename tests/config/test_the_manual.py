"""The manual can be searched, linked and read by keyboard and by ear."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.test import Client

from config.site.manual import api_reference, markdown
from config.site.manual import pages as manual


class Elements(HTMLParser):
    """Every element of a text with its attributes and the text directly in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))
        self._open.append(len(self.found) - 1)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.found[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        for at in self._open:
            self.found[at][2].append(data)


def rendered(text: str) -> markdown.Rendered:
    return markdown.render(text, drawings=Path("/nowhere"))


def test_every_heading_has_an_id_of_its_own() -> None:
    html = rendered("## `make` up & down\n\n## Make up, down!\n\n### Ähnliches\n").html

    assert re.findall(r'<h\d id="([^"]+)"', html) == [
        "make-up-down",
        "make-up-down-2",
        "hnliches",
    ]


def test_a_line_about_one_code_can_be_linked_by_it() -> None:
    html = rendered("| code | means |\n|---|---|\n| `bid-unknown` | x |\n| `a b` | y |\n").html

    assert re.findall(r'<tr id="([^"]+)"', html) == ["bid-unknown"]


def test_a_table_without_heads_is_a_list_of_pairs() -> None:
    html = rendered("| | |\n|---|---|\n| one | 1 |\n").html

    assert "<thead>" not in html
    assert '<th scope="row">one</th>' in html


def test_a_table_with_an_empty_corner_has_heads_above_and_at_the_left() -> None:
    html = rendered("| | a |\n|---|---|\n| one | 1 |\n").html

    assert "<td></td>" in html
    assert '<th scope="col">a</th>' in html
    assert '<th scope="row">one</th>' in html


@pytest.mark.parametrize("slug", list(manual.chapters()))
def test_a_chapter_can_be_read_by_keyboard_and_by_ear(slug: str) -> None:
    html = manual.chapters()[slug].html
    elements = Elements(html).found

    ids = [attrs["id"] for _, attrs, _ in elements if "id" in attrs]
    assert len(ids) == len(set(ids)), "two places of one page by one name"
    assert all("id" in attrs for tag, attrs, _ in elements if re.fullmatch("h[2-6]", tag))
    assert all("".join(text).strip() for tag, _, text in elements if tag == "th"), "an empty head"
    assert all(attrs.get("tabindex") == "0" for tag, attrs, _ in elements if tag == "pre")
    assert html.count("<table") == html.count('<div class="scroll" tabindex="0"')


def test_every_refusal_can_be_linked_by_its_code() -> None:
    html = manual.chapters()["problems"].html

    assert 'id="bid-unknown"' in html


def test_every_guide_stands_on_exactly_one_shelf() -> None:
    shelved = [chapter.slug for _, held in manual.shelves() for chapter in held]
    guides = [slug for slug in manual.chapters() if not slug.startswith(manual.DECISION)]

    assert sorted(shelved) == sorted(guides)
    assert all(slug in guides for shelf in manual.SHELVES for slug in shelf.slugs), "misspelt"


@pytest.mark.django_db
def test_the_contents_are_ordered_by_reader(client: Client) -> None:
    page = client.get("/docs/").content.decode()

    readers = ["Owners", "Consumers", "Finance", "Operators", "Developers"]
    assert re.findall(r'<h2 id="h-shelf-\d">(.*?)</h2>', page)[:5] == readers
    assert page.count('href="/docs/operating/"') == 1


@pytest.mark.django_db
def test_the_manual_can_be_searched(client: Client) -> None:
    page = client.get("/docs/", {"q": "tamPered  record"}).content.decode()

    assert 'href="/docs/operating/#when-something-is-wrong"' in page


def test_what_is_found_is_shown_in_whole_words() -> None:
    [section] = rendered("one two\nthree **four**\n").sections

    assert section.text == "one two three four"


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["", " ", "<script>", "zzzz qqqq", "a" * 5_000, "\0", "("])
def test_any_search_gets_a_page(client: Client, query: str) -> None:
    page = client.get("/docs/", {"q": query})

    assert page.status_code == 200
    assert b"<script>\xe2" not in page.content


def test_the_api_reference_has_every_operation_with_its_summary_and_fields() -> None:
    chapter = manual.chapters()["reference"]

    assert 'id="bids_create"' in chapter.html
    [line] = re.findall(r'<tr id="bids_preview_create">.*?</tr>', chapter.html, re.DOTALL)
    assert "<code>POST bids/preview</code>" in line
    rows = re.findall(r'<tr id="([a-z_]+)">.*?</tr>', chapter.html, re.DOTALL)
    described = list(api_reference.operations(api_reference.description()))
    assert sorted(rows) == sorted(each.name for each in described)
    assert all(each.summary for each in described)


def test_each_reader_finds_a_tutorial_first() -> None:
    first = [shelf.slugs[0] for shelf in manual.SHELVES[:5]]

    assert first == [
        f"tutorial-{role}" for role in ("owner", "consumer", "finance", "operator", "developer")
    ]
