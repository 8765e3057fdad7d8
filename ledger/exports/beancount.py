"""The journal of a period as a beancount file, which `bean-check` accepts.

In beancount a debit is above zero, so every amount is written with the opposite sign of ours.
Amounts have all nine places, and the balance of every account is asserted at the end of the
period with a tolerance far below a nano-unit: beancount's own would hide one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.exports.entries import BookAccount, Books, Entry
from ledger.exports.focus import amount

ROOTS = {
    "prepaid": "Liabilities:Prepaid",
    "chargeback": "Assets:Receivable",
    "earnings": "Liabilities:Earnings",
    "fees": "Income:Fees",
    "cash": "Assets:Cash",
    "burst": "Expenses:Burst",
    "payouts": "Liabilities:Payouts",
    "rounding": "Income:Rounding",
    "tax": "Liabilities:Tax",
    "stripe-fees": "Expenses:Processing",
    "bad-debts": "Expenses:BadDebts",
    "others": "Equity:Others",
    "": "Equity:Unopened",
}
OPENING = "Opening balances"
TOLERANCE = "0.0000000001"


def lines(books: Books) -> Iterator[str]:
    """Yield the file's text, piece by piece."""
    month = books.period.window
    first, after = month.starts_at.date(), month.ends_at.date()
    yield f'option "title" "Offpeak {books.period}"\n'
    opening, closing = books.opening(), books.closing()
    opened = set(opening)
    for account in opening:
        yield _open(account, first.isoformat())
    if opening:
        yield f'{first} * "{OPENING}"\n' + "".join(_leg(*line) for line in opening.items())
    for entry in books.entries():
        for account, _ in entry.lines:
            if account not in opened:
                opened.add(account)
                yield _open(account, first.isoformat())
        if entry.lines:
            yield _transaction(entry)
    for account in sorted(opened, key=name):
        total = f"{amount(-closing.get(account, 0))} ~ {TOLERANCE} {account.currency}"
        yield f"{after} balance {name(account)}  {total}\n"


def _open(account: BookAccount, day: str) -> str:
    return (
        f"{day} open {name(account)} {account.currency}\n"
        f"  title: {_text(account.title or 'not opened yet')}\n"
    )


def _transaction(entry: Entry) -> str:
    narration = f"{entry.kind}: {entry.reference}" if entry.reference else entry.kind
    said = [f"{entry.day} * {_text(narration)}", f'  entry: "{entry.entry_id}"']
    said += [f'  position: "{entry.position}"']
    if entry.lease_id:
        said.append(f'  lease: "{entry.lease_id}"')
    if entry.cost_centre:
        said.append(f"  cost_centre: {_text(entry.cost_centre)}")
    return "\n".join(said) + "\n" + "".join(_leg(*line) for line in entry.lines)


def _leg(account: BookAccount, nanos: int) -> str:
    return f"  {name(account)}  {amount(-nanos)} {account.currency}\n"


def name(account: BookAccount) -> str:
    """Name an account; beancount wants each part to begin with a capital letter or a digit."""
    last = str(account.account_id).upper() if account.account_id else account.currency
    return f"{ROOTS[account.kind]}:{last}"


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
