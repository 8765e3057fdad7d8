"""Files of a bank as it would send them: camt.054, by version, with what a test says is in it."""

from __future__ import annotations

from xml.sax.saxutils import escape


def entry(
    end_to_end_id: str,
    amount: str,
    *,
    currency: str = "EUR",
    came: bool = False,
    status: str = "BOOK",
    day: str = "2026-02-03",
    reference: str = "BANK-1",
    code: str = "",
    more: str = "",
    old: bool = False,
) -> str:
    """Return an entry with one payment. old: as versions before 8 write the state."""
    back = ""
    if code:
        back = f"<RtrInf><Rsn><Cd>{code}</Cd></Rsn><AddtlInf>{escape(more)}</AddtlInf></RtrInf>"
    state = f"<Sts>{status}</Sts>" if old else f"<Sts><Cd>{status}</Cd></Sts>"
    way = "CRDT" if came else "DBIT"
    return (
        f'<Ntry><Amt Ccy="{currency}">{amount}</Amt><CdtDbtInd>{way}</CdtDbtInd>{state}'
        f"<BookgDt><Dt>{day}</Dt></BookgDt><AcctSvcrRef>{reference}</AcctSvcrRef>"
        "<BkTxCd><Prtry><Cd>x</Cd></Prtry></BkTxCd><NtryDtls><TxDtls><Refs>"
        f"<EndToEndId>{end_to_end_id}</EndToEndId></Refs>"
        f'<Amt Ccy="{currency}">{amount}</Amt><CdtDbtInd>{way}</CdtDbtInd>{back}'
        "</TxDtls></NtryDtls></Ntry>"
    )


def notice(*entries: str, version: str = "08", before: str = "") -> str:
    """Return a file. before: what stands between declaration and document."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{before}'
        f'<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.054.001.{version}">'
        "<BkToCstmrDbtCdtNtfctn><GrpHdr><MsgId>N-1</MsgId></GrpHdr><Ntfctn><Id>1</Id>"
        f"{''.join(entries)}</Ntfctn></BkToCstmrDbtCdtNtfctn></Document>"
    )
