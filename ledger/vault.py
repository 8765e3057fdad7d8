"""Values sealed at rest: each under a key of its own, which a key of the installation wraps.

What is sealed opens only under the label it was sealed with, so a row that was moved to another
organisation or name opens no more. Changing the installation's key wraps the values' keys anew;
the values stay as they are. `config.apps` installs one vault per process; everyone else asks
`default_vault()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ledger.domain.refusal import Refusal

KEY_BYTES = 32
NONCE_BYTES = 12
NAME_BYTES = 8
ABOUT_WRAPPING = b"offpeak/work-secrets/v1/wrap"
ABOUT_NAME = b"offpeak/work-secrets/v1/name"


class VaultLocked(Refusal):
    """The value was sealed with a key that this installation does not have, or was tampered with.

    Set the secret again. Whoever runs the market finds how keys are kept under "Operating".
    """

    status = 503


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed value. master: the name of the key that wraps `key`, with which `value` opens."""

    master: str
    key: bytes
    value: bytes


class Vault:
    """Seals and opens values.

    masters: gives the installation's secrets, the one to wrap with first; asked for each value,
    since they change while processes run.
    """

    def __init__(self, masters: Callable[[], Sequence[bytes]]) -> None:
        self._masters = masters

    def current(self) -> str:
        """Return the name of the key that wraps from now on."""
        return name_of(self._masters()[0])

    def seal(self, label: bytes, value: bytes) -> Sealed:
        """Seal a value under a label."""
        key = os.urandom(KEY_BYTES)
        return self._wrapped(label, key, _encrypt(key, value, label))

    def open(self, label: bytes, sealed: Sealed) -> bytes:
        """Return a value that was sealed under this label.

        Raises: VaultLocked.
        """
        return _decrypt(self._key_of(label, sealed), sealed.value, label)

    def rewrap(self, label: bytes, sealed: Sealed) -> Sealed:
        """Return the same value wrapped with the installation's current key.

        Raises: VaultLocked.
        """
        return self._wrapped(label, self._key_of(label, sealed), sealed.value)

    def _wrapped(self, label: bytes, key: bytes, value: bytes) -> Sealed:
        master = self._masters()[0]
        return Sealed(name_of(master), _encrypt(_wrapping(master), key, label), value)

    def _key_of(self, label: bytes, sealed: Sealed) -> bytes:
        for master in self._masters():
            if name_of(master) == sealed.master:
                return _decrypt(_wrapping(master), sealed.key, label)
        raise VaultLocked(key=sealed.master)


_build: Callable[[], Vault] | None = None
_installed: Vault | None = None


def install(build: Callable[[], Vault]) -> None:
    """Make what `build` returns the vault of this process, built when first asked for."""
    global _build, _installed
    _build, _installed = build, None


def default_vault() -> Vault:
    """Return the installed vault."""
    global _installed
    if _installed is None:
        assert _build is not None, "config.apps.SiteConfig.ready() installs the vault"
        _installed = _build()
    return _installed


def name_of(master: bytes) -> str:
    """Return what tells one of the installation's secrets from another, and nothing of it."""
    return _derived(master, ABOUT_NAME, NAME_BYTES).hex()


def _wrapping(master: bytes) -> bytes:
    return _derived(master, ABOUT_WRAPPING, KEY_BYTES)


def _derived(master: bytes, about: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, None, about).derive(master)


def _encrypt(key: bytes, text: bytes, label: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, label)


def _decrypt(key: bytes, sealed: bytes, label: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], label)
    except (InvalidTag, ValueError):
        raise VaultLocked() from None
