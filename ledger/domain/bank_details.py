"""Where an owner is paid to: a bank account by IBAN, or by account and routing number.

What is checked is what a machine can know of a number: country, length, check digits. Whether the
account exists and whose it is, the bank says when it pays, or returns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from unicodedata import normalize

from ledger.domain.holds import need_text
from ledger.domain.payout_events import DetailsKind
from ledger.domain.refusal import Invalid

NAME_LENGTH_MAX = 70
"""As long as a name in a bank file may be."""
_LENGTHS = (
    "AD24 AL28 AT20 BE16 BG22 CH21 CY28 CZ24 DE22 DK18 EE20 ES24 FI18 FR27 GB22 GI23 GR27 HR21 "
    "HU28 IE22 IS26 IT27 LI21 LT20 LU20 LV21 MC27 MD24 ME22 MK19 MT31 NL18 NO15 PL28 PT25 RO24 "
    "RS22 SE24 SI19 SK24 SM27 VA22"
)
IBAN_LENGTHS = {each[:2]: int(each[2:]) for each in _LENGTHS.split()}
"""How long an IBAN is, by country: those of the SEPA. Source: SWIFT's IBAN registry."""

_IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
_BIC = re.compile(r"[A-Z]{6}[A-Z0-9]{2}([A-Z0-9]{3})?")
_ROUTING = re.compile(r"[0-9]{9}")
_ACCOUNT = re.compile(r"[0-9]{4,17}")
_WRITABLE = re.compile(r"[^A-Za-z0-9/?:().,'+ -]")
_LATIN = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
    | {"đ": "d", "Đ": "D", "ð": "d", "þ": "th", "œ": "oe", "Œ": "OE", "&": "+"}
)


class IbanUnreadable(Invalid):
    """That is no IBAN of a country in the SEPA: two letters, two digits, then the account.

    Copy it from a statement of the account; blanks do not matter.
    """


class IbanLengthWrong(Invalid):
    """The IBAN is too long or too short for its country."""


class IbanCheckWrong(Invalid):
    """The check digits of the IBAN do not fit it: a digit is wrong, or two changed places."""


class BicUnreadable(Invalid):
    """A BIC has eight or eleven letters and digits, such as DEUTDEFF. It may be left out."""


class RoutingUnreadable(Invalid):
    """A routing number has nine digits, the last of which is a check digit that has to fit."""


class AccountUnreadable(Invalid):
    """An account number has four to seventeen digits."""


class HolderMissing(Invalid):
    """Say whose account it is, as the bank knows the holder, in letters a bank file can hold.

    Names in other scripts have to be written in Latin letters.
    """


class DetailsIncomplete(Invalid):
    """Give an IBAN, or an account number with its routing number; not both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankDetails:
    """A bank account that was read and checked. Either `iban` or `account` and `routing` is set."""

    name: str
    iban: str = ""
    bic: str = ""
    account: str = ""
    routing: str = ""

    @property
    def kind(self) -> DetailsKind:
        """Return by what the account is named."""
        return "iban" if self.iban else "account"

    @property
    def masked(self) -> str:
        """Return what tells the account from others and would pay nobody: country, last four."""
        return f"{self.iban[:2]}… {self.iban[-4:]}" if self.iban else f"… {self.account[-4:]}"

    def __repr__(self) -> str:
        """Return no number: this may end up in a log."""
        return f"BankDetails({self.masked})"


def read_details(
    *, name: str, iban: str = "", bic: str = "", account: str = "", routing: str = ""
) -> BankDetails:
    """Read a bank account as a person typed it. Refusals quote none of it.

    Raises: HolderMissing, DetailsIncomplete, IbanUnreadable, IbanLengthWrong, IbanCheckWrong,
        BicUnreadable, AccountUnreadable, RoutingUnreadable, TextUnreadable.
    """
    name = " ".join(name.split())
    if len(name) > NAME_LENGTH_MAX or not latin(name):
        raise HolderMissing(length_max=NAME_LENGTH_MAX)
    need_text(name, length_max=NAME_LENGTH_MAX)
    iban, bic = _bare(iban), _bare(bic)
    account, routing = _bare(account), _bare(routing)
    if bool(iban) == bool(account or routing):
        raise DetailsIncomplete()
    if not iban:
        return BankDetails(name=name, account=_account(account), routing=_routing(routing))
    if bic and not _BIC.fullmatch(bic):
        raise BicUnreadable()
    return BankDetails(name=name, iban=read_iban(iban), bic=bic)


def read_iban(text: str) -> str:
    """Return an IBAN without blanks, checked by country, length and check digits (ISO 13616).

    Raises: IbanUnreadable, IbanLengthWrong, IbanCheckWrong.
    """
    iban = _bare(text)
    if not _IBAN.fullmatch(iban) or iban[:2] not in IBAN_LENGTHS:
        raise IbanUnreadable()
    if len(iban) != IBAN_LENGTHS[iban[:2]]:
        raise IbanLengthWrong(country=iban[:2], length=IBAN_LENGTHS[iban[:2]])
    digits = "".join(str(int(each, 36)) for each in iban[4:] + iban[:4])
    if int(digits) % 97 != 1 or not 2 <= int(iban[2:4]) <= 98:
        raise IbanCheckWrong()
    return iban


def latin(text: str) -> str:
    """Return a text in the letters that every bank takes (EPC217-08); what has none is left out."""
    plain = normalize("NFKD", text.translate(_LATIN))
    return " ".join(_WRITABLE.sub("", plain).split())


def _bare(text: str) -> str:
    return "".join(text.split()).upper()


def _account(text: str) -> str:
    if not _ACCOUNT.fullmatch(text):
        raise AccountUnreadable()
    return text


def _routing(text: str) -> str:
    """Return an ABA routing number whose check digit fits."""
    if not _ROUTING.fullmatch(text):
        raise RoutingUnreadable()
    weighed = sum(int(each) * weight for each, weight in zip(text, (3, 7, 1) * 3, strict=True))
    if weighed % 10 or text == "000000000":
        raise RoutingUnreadable()
    return text
