"""The shape of Kueue's baseline, a tenth of it: all finish, nobody is over quota."""

from __future__ import annotations

from tests.benchmarks.admission import QUEUES, SORTS, build, check, live


def test_all_are_admitted_and_finish_and_no_quota_is_exceeded() -> None:
    cluster, coming = build(0, share=10)
    live(cluster, coming)
    check(cluster)
    assert cluster.finished == QUEUES * sum(sort.amount // 10 for sort in SORTS)
