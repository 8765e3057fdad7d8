"""A short code by which the agent of a host gets its token: read out or typed, used once."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, assert_never
from uuid import UUID

from ledger.domain.ids import EnrolmentId, HostId, TenantId, TokenId
from ledger.domain.refusal import Refusal, Unauthenticated
from listings.domain.events import EnrolmentCodeMade, EnrolmentEvent, HostEnrolled

LIFE = timedelta(minutes=15)
ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""What a code is written in: nothing that is taken for another, such as 0 and O, 1, I and L."""
LENGTH = 10
GROUP = 5
HOSTNAME_LENGTH_MAX = 200
ENTROPY_BYTES_MIN = 16


class EnrolmentCodeMalformed(Unauthenticated):
    """That is not an enrolment code: it has ten letters and digits, such as K7Q4M-2XD9F.

    No 0, 1, I, L, O and U are in it.
    """


class EnrolmentCodeUnknown(Unauthenticated):
    """There is no such enrolment code.

    Type it as it was shown, or make a new one: offpeak hosts enrol NAME.
    """


class EnrolmentCodeUsed(Refusal):
    """That enrolment code was used already: it works once.

    If that was not you, revoke the host's tokens on its page. Then make a new code.
    """


class EnrolmentCodeExpired(Refusal):
    """That enrolment code has expired: it works for 15 minutes.

    Make a new one: offpeak hosts enrol NAME.
    """


def write_code(entropy: bytes) -> str:
    """Make a code out of random bytes, at least ENTROPY_BYTES_MIN of them."""
    assert len(entropy) >= ENTROPY_BYTES_MIN
    number, letters = int.from_bytes(entropy), []
    for _ in range(LENGTH):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return f"{''.join(letters[:GROUP])}-{''.join(letters[GROUP:])}"


def read_code(text: str) -> str:
    """Return a code as it was made, whatever its case and its gaps.

    Raises: EnrolmentCodeMalformed.
    """
    letters = "".join(text.upper().replace("-", " ").split())
    if len(letters) != LENGTH or not set(letters) <= set(ALPHABET):
        raise EnrolmentCodeMalformed()
    return f"{letters[:GROUP]}-{letters[GROUP:]}"


def enrolment_of(code: str, key: bytes) -> EnrolmentId:
    """Return the enrolment of a code; without the installation's key nobody finds one by it."""
    digest = hmac.digest(key, f"enrolment code: {code}".encode(), hashlib.sha256)
    return EnrolmentId(UUID(bytes=digest[:16]))


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One code, and what it was exchanged for; None: it was not yet."""

    STREAM: ClassVar[str] = "enrolment"

    made: EnrolmentCodeMade
    used: HostEnrolled | None = None

    @classmethod
    def evolve(cls, state: Enrolment | None, event: EnrolmentEvent, /) -> Enrolment:
        """Return the enrolment after `event`."""
        match event:
            case EnrolmentCodeMade():
                return cls(event)
            case HostEnrolled():
                assert state is not None
                return replace(state, used=event)
            case _:
                assert_never(event)

    def use(self, *, token_id: TokenId, hostname: str, now: datetime) -> list[HostEnrolled]:
        """Exchange the code for a token; for the same one again, while it would be open.

        So an agent that lost the answer asks once more and has it.
        Raises: EnrolmentCodeUsed, EnrolmentCodeExpired.
        """
        if self.used is not None and self.used.token_id != token_id:
            raise EnrolmentCodeUsed(used_at=self.used.at, hostname=self.used.hostname)
        if self.made.expires_at <= now:
            raise EnrolmentCodeExpired(expires_at=self.made.expires_at)
        if self.used is not None:
            return []
        return [
            HostEnrolled(
                enrolment_id=self.made.enrolment_id,
                host_id=self.made.host_id,
                token_id=token_id,
                hostname=hostname[:HOSTNAME_LENGTH_MAX],
                at=now,
            )
        ]


def make(
    enrolment_id: EnrolmentId, *, host_id: HostId, tenant_id: TenantId, now: datetime
) -> EnrolmentCodeMade:
    """Decide on a new code."""
    return EnrolmentCodeMade(
        enrolment_id=enrolment_id,
        tenant_id=tenant_id,
        host_id=host_id,
        expires_at=now + LIFE,
        at=now,
    )
