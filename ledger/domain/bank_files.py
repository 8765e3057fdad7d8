"""Bank files: which payouts are in which, so that each is in one only, and what a bank reads.

The files of the platform are counted, and the number is part of the message's id: a bank refuses
the same id twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from hashlib import sha256
from typing import ClassVar
from uuid import UUID

from ledger.domain.bank_details import BankDetails, latin, read_iban
from ledger.domain.ids import UserId
from ledger.domain.payout_events import BankFileLine, BankFileWritten, FileFormat
from ledger.domain.refusal import Invalid, Refusal

LINES_MAX = 500
"""Transfers of one file: as many as are written in one append."""


class NothingToSend(Refusal):
    """No approved payout waits for a bank file.

    A payout is approved first, and its owner has a bank account that is confirmed.
    """


class DebtorUnknown(Refusal):
    """Nobody has said from which bank account the platform pays.

    Whoever runs the platform sets OFFPEAK_PAYOUT_IBAN and OFFPEAK_PAYOUT_NAME.
    """


class FileTooLong(Invalid):
    """So many payouts do not go into one file: make several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Debtor:
    """From whose bank account payouts are made. iban may be empty: then only CSV is written."""

    name: str = ""
    iban: str = ""
    bic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFiles:
    """The bank files of the platform. count: how many there are. last: the newest."""

    STREAM: ClassVar[str] = "bank-files"

    count: int = 0
    written: frozenset[UUID] = frozenset()

    @classmethod
    def evolve(cls, state: BankFiles | None, event: BankFileWritten, /) -> BankFiles:
        """Return the files after `event`."""
        state = state or cls()
        return replace(state, count=event.number, written=state.written | {event.file_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to be put into a file."""

    file_id: UUID
    format: FileFormat
    currency: str
    debtor: Debtor
    execute_on: date
    lines: Sequence[BankFileLine]


Render = Callable[[BankFileWritten], bytes]


def write(
    files: BankFiles, draft: Draft, *, render: Render, by_user: UserId, now: datetime
) -> list[BankFileWritten]:
    """Decide what a bank file is: its number, and its bytes' hash. Once for its id.

    Raises: NothingToSend, FileTooLong, DebtorUnknown, IbanUnreadable and the like.
    """
    if draft.file_id in files.written:
        return []
    if not draft.lines:
        raise NothingToSend()
    if len(draft.lines) > LINES_MAX:
        raise FileTooLong(most=LINES_MAX)
    if draft.format == "pain.001":
        if not draft.debtor.iban or not latin(draft.debtor.name):
            raise DebtorUnknown()
        read_iban(draft.debtor.iban)
    number = files.count + 1
    event = BankFileWritten(
        file_id=draft.file_id,
        number=number,
        message_id=f"OFFPEAK-{now:%Y%m%d}-{number:06d}",
        format=draft.format,
        currency=draft.currency,
        debtor_name=draft.debtor.name,
        debtor_iban=draft.debtor.iban,
        debtor_bic=draft.debtor.bic,
        execute_on=draft.execute_on,
        lines=tuple(draft.lines),
        total_nanos=sum(line.nanos for line in draft.lines),
        sha256="",
        by_user=by_user,
        at=now,
    )
    return [replace(event, sha256=sha256(render(event)).hexdigest())]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One line of a file with the bank account that it goes to."""

    line: BankFileLine
    details: BankDetails
