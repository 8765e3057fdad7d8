"""Entries that take back what an earlier one moved, and what taking payments costs."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.dispute_events import UseCredited
from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, EntryId
from ledger.domain.money import Money


class FundsReturned(Event, name="ledger.funds-returned"):
    """Money that was paid in and not used went back to who had paid it. The postings sum to zero.

    `account_id` down, `cash` up. corrects: the entry that added it.
    """

    account_id: AccountId
    entry_id: EntryId
    corrects: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


class FundsDisputed(Event, name="ledger.funds-disputed"):
    """A payer's bank took a payment back. The account may fall below what it may by it.

    corrects: the entry that added it. The postings sum to zero: `account_id` down, `cash` up.
    """

    account_id: AccountId
    entry_id: EntryId
    corrects: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


class EntryReversed(Event, name="ledger.entry-reversed"):
    """What an earlier entry moved was moved back: a dispute was won, a refund came back.

    corrects: that entry. Each is reversed once. The postings are its postings the other way.
    """

    account_id: AccountId
    entry_id: EntryId
    corrects: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


class ProcessingFeePaid(Event, name="ledger.processing-fee-paid"):
    """Taking a payment cost the platform a fee; below zero where one was given back.

    `account_id` down, `cash` up. The postings sum to zero.
    """

    account_id: AccountId
    entry_id: EntryId
    money: Money
    reference: str
    postings: tuple[Posting, ...]
    at: datetime


Correcting = FundsReturned | FundsDisputed | EntryReversed | UseCredited
"""Each names the entry that it corrects."""
ReturnEntry = Correcting | ProcessingFeePaid
