"""Static files are named by their content and kept for good; pages and files come compressed."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import storage
from django.test import Client
from django.utils.functional import empty

from config import settings as product
from config.web.statics import gather_static_files

GZIP: dict[str, Any] = {"HTTP_ACCEPT_ENCODING": "gzip"}


@pytest.fixture
def gathered(settings: Any, tmp_path: Path) -> Path:
    """Gather the static files as a web process does."""
    settings.STATIC_ROOT = tmp_path / "static"
    settings.WHITENOISE_USE_FINDERS = False
    settings.STORAGES = product.STORAGES
    vars(storage.staticfiles_storage)["_wrapped"] = empty
    gather_static_files()
    return tmp_path / "static"


@pytest.fixture(autouse=True)
def forget_the_storage() -> Any:
    yield
    vars(storage.staticfiles_storage)["_wrapped"] = empty


@pytest.mark.django_db
@pytest.mark.usefixtures("gathered")
def test_every_file_of_a_page_is_kept_for_good_under_the_name_of_its_content() -> None:
    client = Client()
    page = client.get("/accounts/login/").content.decode()
    files = set(re.findall(r'"(/static/[^"#]+)', page))

    assert len(files) >= 3
    for file in files:
        answer = client.get(file, **GZIP)
        answer.close()
        assert answer.status_code == 200, file
        assert re.search(r"\.[0-9a-f]{12}\.", file)
        assert "immutable" in answer["Cache-Control"], file
        assert int(re.search(r"max-age=(\d+)", answer["Cache-Control"])[1]) > 30_000_000  # type: ignore[index]
        if file.endswith((".css", ".js", ".svg")):
            assert answer["Content-Encoding"] == "gzip", file


@pytest.mark.usefixtures("gathered")
def test_what_a_style_sheet_names_is_named_by_content_too(gathered: Path) -> None:
    [sheet] = gathered.glob("offpeak.????????????.css")
    for name in re.findall(r'url\("?([^")]+)', sheet.read_text()):
        assert (gathered / name).is_file(), name


def test_to_gather_again_is_quick(gathered: Path) -> None:
    started = time.process_time()
    gather_static_files()

    assert time.process_time() - started < 1.0


@pytest.mark.django_db
def test_a_page_comes_compressed_and_an_answer_of_the_api_as_it_is(client: Client) -> None:
    page = client.get("/docs/operating/", **GZIP)
    schema = client.get("/api/openapi.json", **GZIP)

    assert page["Content-Encoding"] == "gzip"
    assert b"<main" in gzip.decompress(page.content)
    assert "Accept-Encoding" in page["Vary"]
    assert not schema.has_header("Content-Encoding")


@pytest.mark.django_db
def test_a_page_does_not_tell_its_secret_by_its_length(client: Client) -> None:
    """The token of a form is another text each time, and so is the length of the answer."""
    pages = [client.get("/accounts/login/", **GZIP).content for _ in range(8)]
    tokens = {re.search(rb'csrfmiddlewaretoken" value="(\w+)', gzip.decompress(p)) for p in pages}

    assert len({found[1] for found in tokens if found}) == len(pages)
    assert len({len(page) for page in pages}) > 1
