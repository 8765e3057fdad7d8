"""Messages by e-mail, through the mail server that this installation is set to."""

from __future__ import annotations

from contextlib import suppress
from smtplib import SMTPException, SMTPResponseException

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from ledger.senders.port import TIMEOUT_SECONDS, Message, Outcome


class MailSender:
    """Mails messages. A message that is sent again has the same Message-ID."""

    def send(self, message: Message) -> Outcome:
        """Mail one message; through once the mail server took it."""
        sender = str(settings.DEFAULT_FROM_EMAIL)
        connection = get_connection(timeout=TIMEOUT_SECONDS)
        mail = EmailMessage(
            subject=" ".join(message.title.split()),
            body=message.body,
            from_email=sender,
            to=[message.to],
            headers={
                "Message-ID": f"<{message.message_id}@{sender.rpartition('@')[2]}>",
                "Auto-Submitted": "auto-generated",
            },
            connection=connection,
        )
        try:
            mail.send()
        except SMTPResponseException as refused:
            # Not its words: a mail server may quote the mail.
            return Outcome(is_through=False, status=refused.smtp_code, words="refused")
        except (OSError, SMTPException, ValueError) as failure:
            return Outcome(is_through=False, words=type(failure).__name__)
        finally:
            # Where it could not be opened as it should be it is open still.
            with suppress(OSError, SMTPException):
                connection.close()
        return Outcome(is_through=True)
