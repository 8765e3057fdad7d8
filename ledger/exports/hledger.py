"""The journal of a period as a file of hledger, which `hledger check --strict` accepts.

It says the same as the beancount file: every account and commodity declared, amounts with all nine
places and the signs of double entry (a debit is above zero), and at the end an assertion of every
account's balance, which hledger compares to the nano-unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.exports.beancount import OPENING, name
from ledger.exports.entries import BookAccount, Books, Entry
from ledger.exports.focus import amount

CLOSING = "Closing balances"
_SPOILS = str.maketrans({";": ",", "|": "/", "\n": " ", "\r": " ", "\t": " "})
"""What would end a description or begin a comment."""


def lines(books: Books) -> Iterator[str]:
    """Yield the file's text, piece by piece."""
    month = books.period.window
    opening, closing = books.opening(), books.closing()
    yield f"; Offpeak {books.period}, as of event {books.position}\n"
    currencies, declared = set[str](), set[BookAccount]()
    for account in opening:
        yield _declared(account, currencies, declared)
    if opening:
        legs = "".join(_leg(*line) for line in opening.items())
        yield f"{month.starts_at.date()} * {OPENING}\n{legs}\n"
    for entry in books.entries():
        for account, _ in entry.lines:
            if account not in declared:
                yield _declared(account, currencies, declared)
        if entry.lines:
            yield _transaction(entry)
    if declared:
        yield f"{month.ends_at.date()} * {CLOSING}\n"
    for account in sorted(declared, key=name):
        total = amount(-closing.get(account, 0))
        yield f"    {name(account)}  0 {account.currency} = {total} {account.currency}\n"


def _declared(account: BookAccount, currencies: set[str], declared: set[BookAccount]) -> str:
    said = ""
    if account.currency not in currencies:
        currencies.add(account.currency)
        said = f"commodity 1000.000000000 {account.currency}\n"
    declared.add(account)
    title = account.title.translate(_SPOILS) or "not opened yet"
    return f"{said}account {name(account)}  ; {title}\n"


def _transaction(entry: Entry) -> str:
    words = f"{entry.kind}: {entry.reference}" if entry.reference else entry.kind
    tags = [f"entry:{entry.entry_id}"]
    if entry.lease_id:
        tags.append(f"lease:{entry.lease_id}")
    if entry.cost_centre:
        tags.append(f"cost_centre:{entry.cost_centre.translate(_SPOILS).replace(',', ' ')}")
    head = f"{entry.day} * ({entry.position}) {words.translate(_SPOILS)}"
    return f"{head}  ; {', '.join(tags)}\n" + "".join(_leg(*line) for line in entry.lines) + "\n"


def _leg(account: BookAccount, nanos: int) -> str:
    return f"    {name(account)}  {amount(-nanos)} {account.currency}\n"
