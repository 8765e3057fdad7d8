"""Nominal quota, borrowing and lending: unset is not zero, use comes back to nothing (I9)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from marketplace.domain.quotas.cohort_tree import Quota, Tree, Usage

PAIR = {"lab": None, "a": "lab", "b": "lab"}


def usage(**quotas: Quota) -> Usage:
    return Usage(Tree(PAIR, quotas))


def test_what_a_unit_owns_is_nominal_and_what_it_takes_beyond_is_borrowed() -> None:
    use = usage(a=Quota(4), b=Quota(4))
    assert use.fits("a", 4).outcome == "nominal"
    assert use.fits("a", 6).outcome == "borrowed"
    assert use.fits("a", 6).borrowed == 2
    assert use.fits("a", 9).outcome == "refused"
    assert "9 > 8" in use.fits("a", 9).in_words()


def test_a_borrowing_limit_that_is_not_set_is_not_zero() -> None:
    assert usage(a=Quota(4), b=Quota(4)).fits("a", 8).fits
    none = usage(a=Quota(4, borrowing=0), b=Quota(4)).fits("a", 5)
    assert (none.outcome, none.available, none.limited_by) == ("refused", 4, "nominal-quota")
    some = usage(a=Quota(4, borrowing=1), b=Quota(4)).fits("a", 6)
    assert (some.available, some.limited_by) == (5, "borrowing-limit")


def test_a_lending_limit_that_is_not_set_is_not_zero() -> None:
    assert usage(a=Quota(0), b=Quota(4)).fits("a", 4).fits
    assert not usage(a=Quota(0), b=Quota(4, lending=0)).fits("a", 1).fits
    lends_one = usage(a=Quota(0), b=Quota(4, lending=1))
    assert lends_one.available("a")[0] == 1
    lends_one.take("mine", "b", 3)
    assert lends_one.available("a")[0] == 1, "what it keeps to itself it uses first"
    lends_one.take("more", "b", 1)
    assert lends_one.available("a")[0] == 0


def test_a_unit_without_quota_of_its_own_lives_on_what_others_lend() -> None:
    use = usage(b=Quota(2))
    assert use.fits("a", 2).borrowed == 2
    assert not use.fits("a", 3).fits


def test_a_unit_without_a_cohort_has_its_quota_and_no_more() -> None:
    use = Usage(Tree({"alone": None}, {"alone": Quota(3)}))
    assert use.fits("alone", 3).outcome == "nominal"
    assert not use.fits("alone", 4).fits


def test_cohorts_lend_to_each_other_as_far_as_they_may() -> None:
    parents = {"all": None, "east": "all", "west": "all", "e": "east", "w": "west"}
    tree = Tree(parents, {"e": Quota(4), "w": Quota(4), "west": Quota(lending=1)})
    use = Usage(tree)
    assert use.available("e") == (5, "cohort")
    capped = Tree(parents, {"e": Quota(4), "w": Quota(4), "east": Quota(borrowing=2)})
    assert Usage(capped).available("e")[0] == 6


def test_giving_back_twice_does_not_make_use_negative() -> None:
    use = usage(a=Quota(4), b=Quota(4))
    use.take("x", "a", 6)
    use.take("x", "a", 6)
    assert (use.used("a"), use.used("lab")) == (6, 6)
    for _ in range(2):
        use.release("x")
    use.release("never taken")
    assert (use.used("a"), use.used("lab")) == (0, 0)


NODES = ("r", "r/x", "r/y", "r/x/1", "r/x/2", "r/y/1", "s")
LEAVES = ("r/x/1", "r/x/2", "r/y/1", "s")
FORBIDDING = st.none() | st.integers(0, 6)


class QuotasAreKept(RuleBasedStateMachine):
    """Any life of a tree: what `fits` allows never breaks a limit, whoever comes and goes."""

    @initialize(
        quotas=st.dictionaries(
            st.sampled_from(NODES), st.builds(Quota, FORBIDDING, FORBIDDING, FORBIDDING)
        )
    )
    def found(self, quotas: dict[str, Quota]) -> None:
        self.quotas = quotas
        parents = {node: node.rpartition("/")[0] or None for node in NODES}
        self.use = Usage(Tree(parents, quotas))
        self.held: dict[int, tuple[str, int]] = {}
        self.last = 0

    @rule(leaf=st.sampled_from(LEAVES), gpus=st.integers(1, 8))
    def ask(self, leaf: str, gpus: int) -> None:
        verdict = self.use.fits(leaf, gpus)
        assert verdict.fits == (gpus <= verdict.available)
        if verdict.fits:
            self.last += 1
            self.use.take(self.last, leaf, gpus)
            self.held[self.last] = (leaf, gpus)

    @rule(number=st.integers(0, 60))
    def give_back(self, number: int) -> None:
        self.use.release(number)
        self.held.pop(number, None)

    @invariant()
    def no_limit_is_broken(self) -> None:
        if not hasattr(self, "use"):
            return
        tree = self.use.tree
        for leaf in LEAVES:
            assert self.use.used(leaf) == sum(n for at, n in self.held.values() if at == leaf)
        for node in NODES:
            used = self.use.used(node)
            assert used >= 0
            if tree.parents[node] is None:
                assert used <= tree.subtree[node], "a cohort never has more than its quota"
                continue
            borrowing = tree.quota(node).borrowing
            if borrowing is not None:
                assert self.use.borrowed(node) <= borrowing

    @invariant()
    def nothing_is_used_when_nobody_is_there(self) -> None:
        if hasattr(self, "use"):
            idle = self.use.copy()
            for number in self.held:
                idle.release(number)
            assert all(idle.used(node) == 0 for node in NODES)


QuotasAreKept.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestQuotasAreKept = QuotasAreKept.TestCase
