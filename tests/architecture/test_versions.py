"""What is released together has one version, the newest of the CHANGELOG, and one licence."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from typing import Any

import pytest
from django.conf import settings

import config
from marketplace import sdk
from metering import agent

ROOT = settings.BASE_DIR
HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
PACKAGES = ("", "marketplace/sdk", "metering/agent")


def _released() -> list[tuple[str, str]]:
    return HEADING.findall((ROOT / "CHANGELOG.md").read_text())


def test_the_newest_version_of_the_changelog_is_that_of_every_package() -> None:
    newest, _ = _released()[0]

    assert {config.VERSION, sdk.VERSION, agent.VERSION} == {newest}
    assert settings.SPECTACULAR_SETTINGS["VERSION"] == newest


def test_versions_of_the_changelog_fall_and_have_dates() -> None:
    released = [(list(map(int, number.split("."))), day) for number, day in _released()]

    assert released == sorted(released, reverse=True)
    assert all(date.fromisoformat(day) for _, day in released)


def test_each_section_of_the_changelog_is_unreleased_or_a_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## .*$", text, re.MULTILINE)

    assert headings[0] == "## Unreleased"
    assert len(headings) == 1 + len(_released())


@pytest.mark.parametrize("folder", PACKAGES)
def test_each_package_names_the_licence_and_takes_its_version_from_the_code(folder: str) -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())

    assert project["project"]["license"] == "Apache-2.0"
    assert project["project"]["dynamic"] == ["version"]
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
