"""What other people wrote is printed as they wrote it: it commands neither us nor the terminal."""

from __future__ import annotations

import json

import pytest

from marketplace.sdk.plain import folded, plain, width_of
from tests.marketplace.cli.pretending import BID, Market, at_a_terminal, offpeak

TITLES = [
    "train [gpu-7] nightly",
    "[/a]",
    "[bold red]paid[/bold red]",
    "[link=https://evil.example]here[/link]",
    ":smile: stays",
    "ends in a backslash \\",
    "Zürich 深圳 مرحبا",
]
CONTROL = "a\x1b[2Jb\x07c\rd\ne\x9bf\u202eg\u2066h\u2028i\x00j\x7fk\tl"


def token(title: str, number: int = 1) -> dict[str, object]:
    return {"token_id": f"t{number}", "title": title, "prefix": "offp", "scopes": ["bids:read"]}


def listed(market: Market, *titles: str) -> None:
    rows = [token(title, number) for number, title in enumerate(titles)]
    market.answers["GET tokens"] = 200, {"data": rows, "next": None}


def test_no_markup_is_read_in_a_table(market: Market) -> None:
    listed(market, *TITLES)

    done = offpeak(market, "tokens", "list")

    assert (done.returncode, done.stderr) == (0, "")
    for title in TITLES:
        assert title in done.stdout


def test_no_markup_is_read_in_facts_after_a_write(market: Market) -> None:
    market.answers["POST bids"] = 201, {"id": BID, "position": 3}
    market.answers[f"GET bids/{BID}"] = 200, {"id": BID, "state": "open", "query": "gpu=[/a]"}

    done = offpeak(market, "bids", "create", "gpu=[/a]", "--for", "1h", "--max", "1")

    assert done.returncode == 0
    assert "gpu=[/a]" in done.stdout and BID in done.stderr
    assert f"offpeak bids explain {BID}" in done.stderr


def test_what_a_terminal_would_obey_is_written_out(market: Market) -> None:
    listed(market, CONTROL)

    done = offpeak(market, "tokens", "list")

    assert len(done.stdout.splitlines()) == 2
    assert "a\\x1b[2Jb\\x07c\\rd\\ne\\x9bf\\u202eg\\u2066h\\u2028i\\x00j\\x7fk\\tl" in done.stdout


def test_a_refusal_that_quotes_a_text_quotes_it_as_text(market: Market) -> None:
    market.answers["GET tokens"] = 409, {"detail": "[/a] \x1b[31mred\nnext", "code": "no"}

    done = offpeak(market, "tokens", "list")

    assert done.returncode == 4
    assert done.stderr == "[/a] \\x1b[31mred\\nnext\n"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_a_title_outside_the_encoding_hides_no_row(market: Market, encoding: str) -> None:
    listed(market, "深圳 \N{NO-BREAK SPACE} 🚀", "plain")

    done = offpeak(market, "tokens", "list", charset=encoding)

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and "plain" in lines[2]
    if encoding != "utf-8":
        assert "\\u6df1\\u5733" in lines[1]
        assert lines[1].index("offp") == lines[2].index("offp")


def test_half_of_a_surrogate_pair_is_printed_too(market: Market) -> None:
    listed(market, "x\ud83dy")

    done = offpeak(market, "tokens", "list")

    assert done.returncode == 0 and "x\\ud83dy" in done.stdout


def test_json_is_the_same_in_every_encoding(market: Market) -> None:
    listed(market, *TITLES, CONTROL)

    done = offpeak(market, "tokens", "list", "-o", "json", charset="ascii")

    assert [each["title"] for each in json.loads(done.stdout)] == [*TITLES, CONTROL]


def test_columns_line_up_under_wide_signs(market: Market) -> None:
    listed(market, "深圳", "ab")

    lines = offpeak(market, "tokens", "list").stdout.splitlines()

    assert [width_of(line[: line.index("offp")]) for line in lines[1:]] == [13, 13]


def test_a_narrow_terminal_shows_blocks_and_a_wide_one_a_table(market: Market) -> None:
    listed(market, "one", "two " * 30)

    _, narrow = at_a_terminal(market, ["tokens", "list"], columns=80)
    _, wide = at_a_terminal(market, ["tokens", "list"], columns=300)

    assert all(width_of(line) <= 80 for line in narrow.splitlines()), narrow
    assert narrow.splitlines()[0].split() == ["token", "t0"]
    assert len(wide.splitlines()) == 3
    assert wide.startswith("\x1b[1mtoken")


def test_no_colour_means_no_escape_at_all(market: Market) -> None:
    listed(market, "one")

    _, shown = at_a_terminal(market, ["tokens", "list"], columns=300, NO_COLOR="1")

    assert "\x1b" not in shown and "one" in shown


def test_a_pipe_gets_whole_rows(market: Market) -> None:
    listed(market, "long " * 100)

    done = offpeak(market, "tokens", "list", COLUMNS="40")

    assert len(done.stdout.splitlines()) == 2 and "\x1b" not in done.stdout


def test_text_without_signs_to_obey_stays_as_it_is() -> None:
    for text in (*TITLES, "👩\u200d🔬", "क\u200dष"):
        assert plain(text) == text


def test_long_text_is_folded_at_blanks_and_words_stay_whole() -> None:
    identity = "0ff9ea40-0000-4000-8000-000000000009"

    assert list(folded(f"one two {identity} three", 9)) == ["one two", identity, "three"]
    assert list(folded("", 9)) == [""]
