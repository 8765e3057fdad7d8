"""What `manage.py run NAME…` runs: loops by their own names, or those of a group by the group's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.env import Env
from config.management.commands.run import asked
from config.wiring import loop_groups, loops

ENV = replace(Env(), markets="eu=eu;us=us")
KNOWN = {loop.name for loop in loops(ENV)}
GROUPS = loop_groups(ENV)


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_all_its_loops_also_where_one_of_them_has_its_name(name: str) -> None:
    assert asked([name], KNOWN, GROUPS) == [each for each in GROUPS[name] if each in KNOWN]


def test_groups_leave_no_loop_to_nobody_and_none_is_all() -> None:
    assert sorted(asked(list(GROUPS), KNOWN, GROUPS)) == sorted(KNOWN)
    assert asked([], KNOWN, GROUPS) == sorted(KNOWN)


def test_loops_go_by_their_own_names_beside_groups() -> None:
    assert asked(["usage", "engine-eu"], KNOWN, GROUPS) == ["usage", "clearing-eu"]
    assert asked(["usage", "clockwork"], KNOWN, GROUPS).count("usage") == 1


def test_a_loop_without_use_here_is_left_out_and_an_unknown_one_is_named() -> None:
    assert asked(["bursting", "forms"], KNOWN, GROUPS) == ["forms"]
    assert asked(["clearin"], KNOWN, GROUPS) == ["clearin"]
