"""Bank accounts are checked as they are typed, and bank files are what a bank can read."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import date
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.bank_details import (
    IBAN_LENGTHS,
    AccountUnreadable,
    BankDetails,
    BicUnreadable,
    DetailsIncomplete,
    HolderMissing,
    IbanCheckWrong,
    IbanLengthWrong,
    IbanUnreadable,
    RoutingUnreadable,
    latin,
    read_details,
    read_iban,
)
from ledger.domain.bank_files import Transfer
from ledger.domain.ids import AccountId, UserId
from ledger.domain.payout_events import BankFileLine, BankFileWritten
from ledger.domain.refusal import Refusal
from ledger.exports.bank_files import rendered, written_amount
from tests.conftest import NOON
from tests.ledger import pain001

GOOD = ("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "NO9386011117947")
CENT = 10_000_000


def line(cents: int, details_id: UUID | None = None) -> BankFileLine:
    return BankFileLine(
        payout_id=uuid4(),
        account_id=AccountId(uuid4()),
        details_id=details_id or uuid4(),
        end_to_end_id=f"OP-{uuid4().hex[:20]}",
        nanos=cents * CENT,
    )


def file_of(*lines: BankFileLine, currency: str = "EUR", bic: str = "") -> BankFileWritten:
    return BankFileWritten(
        file_id=uuid4(),
        number=7,
        message_id="OFFPEAK-20260105-000007",
        format="pain.001",
        currency=currency,
        debtor_name="Offpeak Betrieb Müller & Söhne",
        debtor_iban="DE89370400440532013000",
        debtor_bic=bic,
        execute_on=date(2026, 1, 6),
        lines=lines,
        total_nanos=sum(each.nanos for each in lines),
        sha256="",
        by_user=UserId(uuid4()),
        at=NOON,
    )


@pytest.mark.parametrize("iban", GOOD)
def test_an_iban_is_read_with_blanks_and_in_any_case(iban: str) -> None:
    assert read_iban(iban.lower()) == iban.replace(" ", "")


@pytest.mark.parametrize(
    ("iban", "refusal"),
    [
        ("", IbanUnreadable),
        ("US64SVBKUS6S3300958879", IbanUnreadable),
        ("DE8937040044053201300", IbanLengthWrong),
        ("DE89370400440532013001", IbanCheckWrong),
        ("DE98370400440532013000", IbanCheckWrong),
    ],
)
def test_an_iban_that_cannot_be_is_refused(iban: str, refusal: type[Refusal]) -> None:
    with pytest.raises(refusal) as raised:
        read_iban(iban)
    assert iban[4:] not in str(raised.value.details) or not iban


@given(st.integers(4, 21), st.integers(1, 9))
def test_one_wrong_digit_is_always_found(place: int, more: int) -> None:
    iban = "DE89370400440532013000"
    wrong = iban[:place] + str((int(iban[place]) + more) % 10) + iban[place + 1 :]
    with pytest.raises(IbanCheckWrong):
        read_iban(wrong)


def test_lengths_are_known_of_all_countries_of_the_sepa() -> None:
    assert len(IBAN_LENGTHS) == 42 and IBAN_LENGTHS["MT"] == 31


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"name": "", "iban": GOOD[0]}, HolderMissing),
        ({"name": "山田", "iban": GOOD[0]}, HolderMissing),
        ({"name": "Lab", "iban": GOOD[0], "bic": "DEUT"}, BicUnreadable),
        ({"name": "Lab"}, DetailsIncomplete),
        ({"name": "Lab", "iban": GOOD[0], "account": "12345"}, DetailsIncomplete),
        ({"name": "Lab", "account": "12345", "routing": "123456789"}, RoutingUnreadable),
        ({"name": "Lab", "account": "12x45", "routing": "021000021"}, AccountUnreadable),
    ],
)
def test_what_is_no_bank_account_is_refused(asked: dict[str, str], refusal: type[Refusal]) -> None:
    with pytest.raises(refusal):
        read_details(**asked)


def test_a_bank_account_is_shown_by_its_last_four_only() -> None:
    read = read_details(name="Lab", iban=GOOD[0])
    assert read.masked == "DE… 3000" and "0532" not in repr(read)
    assert read_details(name="Lab", account="123456789", routing="021000021").masked == "… 6789"


def test_names_are_in_letters_that_every_bank_takes() -> None:
    assert latin("Müller & Söhne, Łódź <b>") == "Muller + Sohne, Lodz b"


@pytest.mark.parametrize("bic", ["", "COBADEFFXXX"])
def test_a_file_is_one_that_a_bank_reads(bic: str) -> None:
    accounts = [
        BankDetails(name="Jürgen Groß", iban="DE89370400440532013000", bic=bic),
        BankDetails(name="Lab O'Neill", iban="NO9386011117947"),
    ]
    lines = [line(1), line(123_456_789)]
    file = file_of(*lines, bic=bic)
    transfers = [Transfer(*each) for each in zip(lines, accounts, strict=True)]
    root = pain001.read(rendered(file, transfers))
    assert pain001.texts(root, "InstdAmt") == ["0.01", "1234567.89"]
    assert pain001.texts(root, "CtrlSum") == ["1234567.90"] * 2
    assert pain001.texts(root, "Cd") == ["SEPA"]
    assert rendered(file, transfers) == rendered(file, transfers)


def test_accounts_without_an_iban_are_named_by_their_bank() -> None:
    account = BankDetails(name="Lab", account="123456789", routing="021000021")
    one = line(500)
    data = rendered(file_of(one, currency="USD"), [Transfer(one, account)])
    root = pain001.read(data)
    assert pain001.texts(root, "MmbId") == ["021000021"]
    assert pain001.texts(root, "Cd") == ["NURG", "USABA"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b"<PmtMtd>TRF</PmtMtd>", b""),
        (b"<CtrlSum>5.00</CtrlSum>", b"<CtrlSum>5.01</CtrlSum>"),
        (b"<NbOfTxs>1</NbOfTxs>", b"<NbOfTxs>2</NbOfTxs>"),
        (b"<Nm>Lab</Nm>", "<Nm>Läb</Nm>".encode()),
        (b"<PmtMtd>TRF</PmtMtd>", b"<ChrgBr>SLEV</ChrgBr><PmtMtd>TRF</PmtMtd>"),
    ],
)
def test_the_check_of_files_finds_what_is_wrong(right: bytes, wrong: bytes) -> None:
    one = line(500)
    data = rendered(file_of(one), [Transfer(one, BankDetails(name="Lab", iban=GOOD[2]))])
    pain001.read(data)
    with pytest.raises(AssertionError):
        pain001.read(data.replace(right, wrong, 1))


def test_a_csv_file_has_the_same_transfers_and_no_formula() -> None:
    one = line(500)
    file = replace(file_of(one), format="csv")
    account = BankDetails(name="+cmd", iban=GOOD[2])
    [row] = csv.DictReader(io.StringIO(rendered(file, [Transfer(one, account)]).decode()))
    assert (row["amount"], row["currency"], row["iban"]) == ("5.00", "EUR", GOOD[2])
    assert row["name"] == "'+cmd"


@pytest.mark.parametrize(
    ("currency", "nanos", "text"),
    [("JPY", 5_000_000_000, "5"), ("KWD", 1_500_000_000, "1.500"), ("USD", 50 * CENT, "0.50")],
)
def test_amounts_have_the_places_of_their_currency(currency: str, nanos: int, text: str) -> None:
    assert written_amount(nanos, currency) == text
