"""Values of secrets on their way from the server to work: in memory alone, for one attempt.

What a lease's work names is asked for when it is about to start, by whoever talks to the server;
the tick never waits for it. Nothing of it is spooled: an agent that was started again asks again.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from . import sealing
from .runtimes.port import NotYet, StartFailed
from .uplink import Refused, Unreachable, Uplink
from .wire import Assignment, SecretsAsked

ASKED_FOR = "its secrets are asked for"
NO_ANSWER = "the server handed out no secrets"


@dataclass(slots=True)
class _Wanted:
    """What one lease's work is to be handed. values: None: nothing came yet."""

    names: tuple[str, ...]
    values: Mapping[str, bytes] | None = field(default=None, repr=False)
    refused: str = ""


class Handing:
    """Asks for what is wanted and keeps it until the work has it. lock: guards what is wanted."""

    def __init__(self, uplink: Uplink, lock: AbstractContextManager[object]) -> None:
        self._uplink = uplink
        self._lock = lock
        self._wanted: dict[UUID, _Wanted] = {}

    def take(self, lease_id: UUID, names: tuple[str, ...]) -> Mapping[str, bytes]:
        """Return the values for a lease's work by name.

        Raises: NotYet, StartFailed.
        """
        if not names:
            return {}
        with self._lock:
            wanted = self._wanted.setdefault(lease_id, _Wanted(names))
            if wanted.refused:
                raise StartFailed(wanted.refused)
            if wanted.values is None:
                raise NotYet(ASKED_FOR)
            return wanted.values

    def forget(self, lease_id: UUID) -> None:
        """Keep nothing of a lease: its work has its secrets, or will not be started."""
        with self._lock:
            self._wanted.pop(lease_id, None)

    def ask(self, desired: Collection[UUID]) -> None:
        """Ask the server for what is wanted, and forget leases that are not desired any more.

        Raises: Unreachable; Refused, where it is about this host.
        """
        with self._lock:
            for lease_id in self._wanted.keys() - set(desired):
                del self._wanted[lease_id]
            waiting = [
                (lease_id, wanted.names)
                for lease_id, wanted in self._wanted.items()
                if wanted.values is None and not wanted.refused
            ]
        for lease_id, names in waiting:
            refused, values = "", None
            try:
                values = self._fetched(lease_id, names)
            except Refused as refusal:
                if refusal.is_about_us:
                    raise
                refused = _sentence(refusal)
            with self._lock:
                if (wanted := self._wanted.get(lease_id)) is not None:
                    wanted.values, wanted.refused = values, refused

    def _fetched(self, lease_id: UUID, names: Sequence[str]) -> dict[str, bytes]:
        pair, attempt_id = sealing.Pair(), uuid4()
        public = base64.b64encode(pair.public).decode()
        asked = SecretsAsked(lease_id=lease_id, attempt_id=attempt_id, public_key=public)
        answer = self._uplink.secrets(asked)
        try:
            sealed = base64.b64decode(answer.sealed, validate=True)
            said = json.loads(pair.open(f"{lease_id} {attempt_id}", sealed))
            return {name: base64.b64decode(said[name]) for name in names}
        except (sealing.SealBroken, binascii.Error, ValueError, KeyError, TypeError):
            # Not what was said: that may have a value in it.
            raise Unreachable("the server's answer about secrets does not open") from None


def names_of(assignment: Assignment) -> tuple[str, ...]:
    """Return the names of all that is asked for: of the work's own secrets, and its source's."""
    more = "" if assignment.source is None else assignment.source.secret
    return tuple(dict.fromkeys([*assignment.secrets, *([more] if more else ())]))


def _sentence(refusal: Refused) -> str:
    """Return why the server refuses, as the consumer reads it."""
    _, _, body = str(refusal).partition(": ")
    try:
        problem = json.loads(body)
        names = problem.get("details", {}).get("secrets", [])
        told = f"{NO_ANSWER}: {problem['detail']}"
        return f"{told} ({', '.join(map(str, names))})" if names else told
    except (ValueError, KeyError, AttributeError, TypeError):
        return NO_ANSWER
