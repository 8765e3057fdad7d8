"""How a general ledger elsewhere calls our kinds of accounts, for exports of journals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, get_args

from ledger.domain.event import Event
from ledger.domain.events import AccountKind
from ledger.domain.holds import need_text
from ledger.domain.ids import UserId
from ledger.domain.refusal import Invalid

NAME_LENGTH_MAX = 40
ROUNDING = "rounding"
KINDS: tuple[str, ...] = tuple(dict.fromkeys((*get_args(AccountKind), "others", ROUNDING)))
"""What may be mapped: the kinds of accounts, all accounts of others together, and rounding."""


class AccountKindUnknown(Invalid):
    """There is no such kind of account to map. `known` has them all."""


class NameMissing(Invalid):
    """An account is mapped to a number or a name; leave out what keeps its own name."""


class GlMappingSet(Event, name="ledger.gl-mapping-set"):
    """From now on journals for SAP, NetSuite and QuickBooks use these numbers and names.

    accounts: by kind of account; what is not in it goes by its own name. company: the company code
    of SAP, the subsidiary of NetSuite. document_type: of SAP.
    """

    accounts: tuple[tuple[str, str], ...]
    company: str
    document_type: str
    by_user: UserId
    at: datetime


@dataclass(frozen=True, slots=True)
class GlMapping:
    """The mapping that holds."""

    STREAM: ClassVar[str] = "glmapping"

    accounts: Mapping[str, str] = field(default_factory=dict)
    company: str = "1000"
    document_type: str = "SA"

    @classmethod
    def evolve(cls, state: GlMapping | None, event: GlMappingSet, /) -> GlMapping:
        """Return the mapping after `event`: each replaces the one before."""
        return cls(dict(event.accounts), event.company, event.document_type)

    def account(self, kind: str) -> str:
        """Return what the other ledger calls the accounts of a kind."""
        return self.accounts.get(kind) or f"Offpeak {kind or 'unopened'}"

    def change(self, wanted: GlMapping, *, by: UserId, now: datetime) -> Sequence[GlMappingSet]:
        """Take another mapping; the same one changes nothing.

        Raises: AccountKindUnknown, NameMissing, TextUnreadable.
        """
        for kind, name in wanted.accounts.items():
            if kind not in KINDS:
                raise AccountKindUnknown(given=kind[:NAME_LENGTH_MAX], known=list(KINDS))
            if not name.strip():
                raise NameMissing(kind=kind)
            need_text(name, length_max=NAME_LENGTH_MAX)
        need_text(wanted.company, length_max=NAME_LENGTH_MAX)
        need_text(wanted.document_type, length_max=NAME_LENGTH_MAX)
        if wanted == self:
            return []
        return [
            GlMappingSet(
                accounts=tuple(sorted(wanted.accounts.items())),
                company=wanted.company,
                document_type=wanted.document_type,
                by_user=by,
                at=now,
            )
        ]
