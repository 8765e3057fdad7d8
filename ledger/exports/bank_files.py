"""Bank files: credit transfers as ISO 20022 pain.001.001.09, and as CSV.

Both follow from the event and the sealed bank accounts alone, so a file that is asked for again has
the same bytes. Texts are in the letters that every bank takes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from xml.sax.saxutils import escape

from ledger.domain.bank_details import latin
from ledger.domain.bank_files import Transfer
from ledger.domain.money import NANOS_PER_UNIT
from ledger.domain.payout_events import BankFileWritten
from ledger.exports.cells import harmless
from ledger.exports.gl import digits_of

NAMESPACE = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
COLUMNS = (
    "message_id",
    "end_to_end_id",
    "name",
    "iban",
    "bic",
    "account",
    "routing",
    "amount",
    "currency",
    "execute_on",
    "remittance",
)
MEDIA_TYPES = {"pain.001": "application/xml", "csv": "text/csv"}
SUFFIXES = {"pain.001": "xml", "csv": "csv"}
NAME_LENGTH_MAX = 70
TEXT_LENGTH_MAX = 140


def rendered(file: BankFileWritten, transfers: Sequence[Transfer]) -> bytes:
    """Return a bank file's bytes."""
    text = _pain001(file, transfers) if file.format == "pain.001" else _csv(file, transfers)
    return text.encode()


def name_of(message_id: str, form: str) -> str:
    """Return what a file is called."""
    return f"{message_id}.{SUFFIXES[form]}"


def written_amount(nanos: int, currency: str) -> str:
    """Write whole cents as banks read them. nanos: whole units of the currency's smallest."""
    digits = digits_of(currency)
    minor, rest = divmod(nanos * 10**digits, NANOS_PER_UNIT)
    assert rest == 0, "a payout is whole cents"
    if digits == 0:
        return str(minor)
    return f"{minor // 10**digits}.{minor % 10**digits:0{digits}d}"


def _csv(file: BankFileWritten, transfers: Sequence[Transfer]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for each in transfers:
        to = each.details
        writer.writerow(
            harmless(
                [
                    file.message_id,
                    each.line.end_to_end_id,
                    latin(to.name),
                    to.iban,
                    to.bic,
                    to.account,
                    to.routing,
                    written_amount(each.line.nanos, file.currency),
                    file.currency,
                    file.execute_on.isoformat(),
                    _remittance(each),
                ]
            )
        )
    return buffer.getvalue()


def _remittance(each: Transfer) -> str:
    return latin(f"Offpeak earnings {each.line.end_to_end_id}")[:TEXT_LENGTH_MAX]


def _pain001(file: BankFileWritten, transfers: Sequence[Transfer]) -> str:
    """Return a customer credit transfer initiation. Elements stand in the order of the schema."""
    count = str(len(transfers))
    total = written_amount(file.total_nanos, file.currency)
    debtor = latin(file.debtor_name)[:NAME_LENGTH_MAX]
    is_sepa = file.currency == "EUR" and all(each.details.iban for each in transfers)
    service = _tag("PmtTpInf", _tag("SvcLvl", _tag("Cd", "SEPA" if is_sepa else "NURG")))
    header = _tag(
        "GrpHdr",
        _tag("MsgId", file.message_id)
        + _tag("CreDtTm", f"{file.at:%Y-%m-%dT%H:%M:%S}Z")
        + _tag("NbOfTxs", count)
        + _tag("CtrlSum", total)
        + _tag("InitgPty", _tag("Nm", debtor)),
    )
    payment = _tag(
        "PmtInf",
        _tag("PmtInfId", f"{file.message_id}-1")
        + _tag("PmtMtd", "TRF")
        + _tag("NbOfTxs", count)
        + _tag("CtrlSum", total)
        + service
        + _tag("ReqdExctnDt", _tag("Dt", file.execute_on.isoformat()))
        + _tag("Dbtr", _tag("Nm", debtor))
        + _tag("DbtrAcct", _tag("Id", _tag("IBAN", file.debtor_iban)))
        + _tag("DbtrAgt", _institution(file.debtor_bic))
        + _tag("ChrgBr", "SLEV" if is_sepa else "SHAR")
        + "".join("\n" + _transfer(file, each) for each in transfers),
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<Document xmlns="{NAMESPACE}">\n<CstmrCdtTrfInitn>\n{header}\n{payment}\n'
        "</CstmrCdtTrfInitn>\n</Document>\n"
    )


def _transfer(file: BankFileWritten, each: Transfer) -> str:
    to = each.details
    amount = written_amount(each.line.nanos, file.currency)
    if to.iban:
        agent = _tag("CdtrAgt", _institution(to.bic)) if to.bic else ""
        account = _tag("IBAN", to.iban)
    else:
        system = _tag("ClrSysId", _tag("Cd", "USABA")) + _tag("MmbId", to.routing)
        agent = _tag("CdtrAgt", _tag("FinInstnId", _tag("ClrSysMmbId", system)))
        account = _tag("Othr", _tag("Id", to.account))
    return _tag(
        "CdtTrfTxInf",
        _tag("PmtId", _tag("EndToEndId", each.line.end_to_end_id))
        + _tag("Amt", f'<InstdAmt Ccy="{file.currency}">{amount}</InstdAmt>')
        + agent
        + _tag("Cdtr", _tag("Nm", escape(latin(to.name)[:NAME_LENGTH_MAX])))
        + _tag("CdtrAcct", _tag("Id", account))
        + _tag("RmtInf", _tag("Ustrd", _remittance(each))),
    )


def _institution(bic: str) -> str:
    known = _tag("BICFI", bic) if bic else _tag("Othr", _tag("Id", "NOTPROVIDED"))
    return _tag("FinInstnId", known)


def _tag(name: str, inside: str) -> str:
    return f"<{name}>{inside}</{name}>"
