"""Sealing for one attempt: what the server answers opens for the pair that asked, and never else.

The agent makes an X25519 pair in memory for each attempt and sends the public half. The answer is
sealed under a key that HKDF derives from both halves for that attempt, with the attempt as
associated data. Both sides use this module; `cryptography` is loaded when it is first needed, as
the agent has it only as its extra `secrets`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32
ABOUT = b"offpeak/attempt/v1/"
ONCE = b"\0" * 12
"""The nonce: each key seals one text."""


class SealBroken(Exception):
    """It was sealed for another attempt or another pair, or was changed on its way."""


def is_possible() -> bool:
    """Tell if this installation can open what is sealed."""
    return find_spec("cryptography") is not None


class Pair:
    """A pair for one attempt; it is never written anywhere."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, attempt: str, sealed: bytes) -> bytes:
        """Return what was sealed for this pair and attempt.

        Raises: SealBroken.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        theirs, text = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
        try:
            key = _key(self._private, theirs, theirs + self.public, attempt)
            return ChaCha20Poly1305(key).decrypt(ONCE, text, attempt.encode())
        except (InvalidTag, ValueError):
            raise SealBroken() from None


def seal(public: bytes, attempt: str, text: bytes) -> bytes:
    """Seal a text for whoever has the other half of `public`.

    Raises: ValueError where that is no public half.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    own = X25519PrivateKey.generate()
    ours = own.public_key().public_bytes_raw()
    key = _key(own, public, ours + public, attempt)
    return ours + ChaCha20Poly1305(key).encrypt(ONCE, text, attempt.encode())


def _key(private: X25519PrivateKey, theirs: bytes, both: bytes, attempt: str) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    shared = private.exchange(X25519PublicKey.from_public_bytes(theirs))
    about = ABOUT + attempt.encode()
    return HKDF(hashes.SHA256(), KEY_BYTES, both, about).derive(shared)
