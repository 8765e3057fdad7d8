"""A strict reader of pain.001.001.09: order, what must be there, lengths, letters, sums.

What ISO 20022's schema and the EPC's guidelines (EPC132-08) ask of a credit transfer, as far as we
write it: an element that is not in this table is wrong, as is one out of its place.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

NAMESPACE = "{urn:iso:std:iso:20022:tech:xsd:pain.001.001.09}"
ID = r"[A-Za-z0-9/?:().,'+ -]{1,35}"
NAME = r"[A-Za-z0-9/?:().,'+ -]{1,70}"
AMOUNT = r"[0-9]{1,15}\.[0-9]{2}"
BIC = r"[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?"
IBAN = r"[A-Z]{2}[0-9]{2}[A-Za-z0-9]{1,30}"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"

Shape = dict[str, Any]
AGENT: Shape = {
    "FinInstnId": {
        "BICFI?": BIC,
        "ClrSysMmbId?": {"ClrSysId": {"Cd": "[A-Z]{5}"}, "MmbId": "[0-9]{1,35}"},
        "Othr?": {"Id": "NOTPROVIDED"},
    }
}
ACCOUNT: Shape = {"Id": {"IBAN?": IBAN, "Othr?": {"Id": "[0-9]{1,34}"}}}
TRANSFER: Shape = {
    "PmtId": {"EndToEndId": ID},
    "Amt": {"InstdAmt": AMOUNT},
    "CdtrAgt?": AGENT,
    "Cdtr": {"Nm": NAME},
    "CdtrAcct": ACCOUNT,
    "RmtInf": {"Ustrd": r"[A-Za-z0-9/?:().,'+ -]{1,140}"},
}
SHAPE: Shape = {
    "CstmrCdtTrfInitn": {
        "GrpHdr": {
            "MsgId": ID,
            "CreDtTm": rf"{DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z",
            "NbOfTxs": "[0-9]{1,15}",
            "CtrlSum": AMOUNT,
            "InitgPty": {"Nm": NAME},
        },
        "PmtInf": {
            "PmtInfId": ID,
            "PmtMtd": "TRF",
            "NbOfTxs": "[0-9]{1,15}",
            "CtrlSum": AMOUNT,
            "PmtTpInf": {"SvcLvl": {"Cd": "SEPA|NURG"}},
            "ReqdExctnDt": {"Dt": DAY},
            "Dbtr": {"Nm": NAME},
            "DbtrAcct": {"Id": {"IBAN": IBAN}},
            "DbtrAgt": AGENT,
            "ChrgBr": "SLEV|SHAR",
            "CdtTrfTxInf+": TRANSFER,
        },
    }
}


def read(data: bytes) -> ElementTree.Element:
    """Return the document, checked. Raises: AssertionError that says what is wrong."""
    root = ElementTree.fromstring(data)
    assert root.tag == f"{NAMESPACE}Document", root.tag
    _check(root, SHAPE, "Document")
    transfers = [Decimal(each) for each in texts(root, "InstdAmt")]
    for total in texts(root, "CtrlSum"):
        assert Decimal(total) == sum(transfers), "the control sum is not the sum"
    for count in texts(root, "NbOfTxs"):
        assert int(count) == len(transfers), "the number of transfers is not their number"
    ends = texts(root, "EndToEndId")
    assert len(set(ends)) == len(ends), "an end-to-end id is there twice"
    return root


def texts(root: ElementTree.Element, name: str) -> list[str]:
    return [each.text or "" for each in root.iter(f"{NAMESPACE}{name}")]


def _check(element: ElementTree.Element, shape: Shape | str, path: str) -> None:
    if isinstance(shape, str):
        assert not list(element), f"{path} has elements in it"
        assert re.fullmatch(shape, element.text or ""), f"{path} is {element.text!r}"
        return
    found = [each.tag.removeprefix(NAMESPACE) for each in element]
    expected = [name.rstrip("?+") for name in shape]
    assert set(found) <= set(expected), f"{path} has {set(found) - set(expected)}"
    places = [expected.index(name) for name in found]
    assert places == sorted(places), f"{path} is out of order: {found}"
    for name, inside in shape.items():
        plain = name.rstrip("?+")
        those = [each for each in element if each.tag == f"{NAMESPACE}{plain}"]
        assert those or name.endswith("?"), f"{path} has no {plain}"
        assert len(those) < 2 or name.endswith("+"), f"{path} has several {plain}"
        for each in those:
            _check(each, inside, f"{path}/{plain}")
