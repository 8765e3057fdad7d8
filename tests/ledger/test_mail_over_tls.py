"""Mail goes to its server over TLS, by STARTTLS or from the first byte on, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.senders.mail import MailSender
from ledger.senders.port import Message
from tests.ledger.certificates import certificate
from tests.ledger.receivers import mail_server, use_mail

MESSAGE = Message(message_id="1", to="olga@acme.example", title="Low", body="Low", secrets=())


@pytest.mark.parametrize("at_once", [False, True])
def test_mail_is_taken_by_tls_from_a_server_that_is_trusted(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    context, trusted = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with mail_server(context, at_once=at_once) as box:
        use_mail(settings, box.port)
        settings.EMAIL_USE_SSL, settings.EMAIL_USE_TLS = at_once, not at_once
        outcome = MailSender().send(MESSAGE)

    assert outcome.is_through, outcome
    assert (len(box.mails), box.secured) == (1, 1)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_server_that_nobody_vouches_for_gets_no_mail(
    settings: Any, tmp_path: Path, at_once: bool
) -> None:
    context, _ = certificate(tmp_path)
    with mail_server(context, at_once=at_once) as box:
        use_mail(settings, box.port)
        settings.EMAIL_USE_SSL, settings.EMAIL_USE_TLS = at_once, not at_once
        outcome = MailSender().send(MESSAGE)

    assert not outcome.is_through
    assert outcome.words == "SSLCertVerificationError"
    assert box.mails == []


def test_a_server_without_tls_gets_no_mail_where_tls_is_asked_for(settings: Any) -> None:
    with mail_server() as box:
        use_mail(settings, box.port)
        settings.EMAIL_USE_TLS = True
        outcome = MailSender().send(MESSAGE)

    assert not outcome.is_through
    assert box.mails == []
