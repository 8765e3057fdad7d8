"""The project a bid is for: a label by which spending is told apart and budgets count it."""

from __future__ import annotations

import re

from ledger.domain.refusal import Invalid

_PROJECT = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


class ProjectUnreadable(Invalid):
    """A project is up to 63 small letters, digits, dots, hyphens and underscores, such as llm-eval.

    It begins and ends with a letter or digit, so that no two projects differ by what nobody sees.
    """


def need_project(project: str) -> None:
    """Refuse a label that could be mistaken for another. Empty: of no project.

    Raises: ProjectUnreadable.
    """
    if project and not _PROJECT.fullmatch(project):
        raise ProjectUnreadable(given=project[:80])
