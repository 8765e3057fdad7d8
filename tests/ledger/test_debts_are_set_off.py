"""What two parties owe each other is set off; what is left is owed one way only."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.netting import Owed, netted

ADA, BOB, EVE = (UUID(int=number) for number in (1, 2, 3))


def test_mutual_debts_are_set_off() -> None:
    [net] = netted([Owed(ADA, BOB, 500, "USD"), Owed(BOB, ADA, 200, "USD")])

    assert (net.debtor_id, net.creditor_id, net.nanos) == (ADA, BOB, 300)
    assert (net.gross_nanos, net.against_nanos) == (500, 200)


def test_what_cancels_out_is_not_owed() -> None:
    assert netted([Owed(ADA, BOB, 5, "USD"), Owed(BOB, ADA, 5, "USD")]) == []


def test_currencies_are_never_set_off_against_each_other() -> None:
    nets = netted([Owed(ADA, BOB, 5, "USD"), Owed(BOB, ADA, 5, "EUR")])

    assert {(net.debtor_id, net.currency, net.nanos) for net in nets} == {
        (ADA, "USD", 5),
        (BOB, "EUR", 5),
    }


def test_a_debt_below_zero_is_owed_the_other_way_and_nobody_owes_itself() -> None:
    [net] = netted([Owed(ADA, BOB, -7, "USD"), Owed(EVE, EVE, 9, "USD")])

    assert (net.debtor_id, net.creditor_id, net.nanos) == (BOB, ADA, 7)


@given(
    st.lists(
        st.builds(
            Owed,
            st.sampled_from([ADA, BOB, EVE]),
            st.sampled_from([ADA, BOB, EVE]),
            st.integers(-(10**12), 10**12),
            st.sampled_from(["USD", "EUR"]),
        ),
        max_size=20,
    )
)
def test_everybody_is_owed_as_much_as_before(debts: list[Owed]) -> None:
    nets = netted(debts)

    for party in (ADA, BOB, EVE):
        for currency in ("USD", "EUR"):
            before = sum(
                (each.creditor_id == party) * each.nanos - (each.debtor_id == party) * each.nanos
                for each in debts
                if each.currency == currency
            )
            after = sum(
                (each.creditor_id == party) * each.nanos - (each.debtor_id == party) * each.nanos
                for each in nets
                if each.currency == currency
            )
            assert before == after
    assert len({frozenset((n.debtor_id, n.creditor_id, n.currency)) for n in nets}) == len(nets)
    assert [net.nanos for net in nets] == sorted((net.nanos for net in nets), reverse=True)
