"""Several policies that are tried together, as an address says them.

Each is one `with` of the address: its kind and the fields of its form, as a form sends them. So a
trial can be kept, sent to a colleague, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict

from config.site.pages.policies.choices import Choices
from config.site.pages.policies.one_form import PolicyForm
from config.site.pages.policies.sentences import event_text
from config.site.pages.policies.views import form_of
from config.site.parts import refusals
from ledger.access import Actor
from ledger.domain.refusal import Invalid, Refusal
from marketplace.trials.proposed_policies import Asked, policy_of

TRY = "/fairness/try"
TOGETHER_MAX = 12
"""Policies of one trial on a page: an address holds no more. The API takes fifty."""
PERMISSIONS = ("use", "listing")
"""Kinds of which it is told what they would have refused in the last days."""


class TooManyTogether(Invalid):
    """On this page at most twelve policies are tried together; the API takes fifty."""


@dataclass(slots=True)
class Part:
    """One policy of a trial. query: how an address says it. said: as people read it."""

    form: PolicyForm
    query: str
    said: str = ""
    policy: Asked | None = None
    error: str = ""
    links: dict[str, str] = field(default_factory=dict)


class Plan:
    """The policies of a trial: those named by `with`, and last the one in the form, if any is.

    may: tells if the visitor may try a kind; others are left out.

    Raises: TooManyTogether, PolicyKindUnknown.
    """

    def __init__(
        self, queries: Sequence[str], choices: Choices, may: Callable[[type[PolicyForm]], bool]
    ) -> None:
        self.choices = choices
        if len(queries) >= TOGETHER_MAX:
            raise TooManyTogether(policies_max=TOGETHER_MAX)
        self.parts = [part for query in queries if (part := self._part(query, may)) is not None]

    def _part(self, query: str, may: Callable[[type[PolicyForm]], bool]) -> Part | None:
        said = QueryDict(query)
        of = form_of(said.get("kind", ""))
        form = of(said, choices=self.choices, trying=True)
        return Part(form, query) if may(of) else None

    def add(self, form: PolicyForm) -> None:
        """Take in what the form on the page says."""
        self.parts.append(Part(form, urlencode([("kind", form.kind), *form.sent])))

    def read(self, actor: Actor, *, now: datetime) -> bool:
        """Read what each part says; tell if all can be tried.

        Raises: SubscriberUnknown, MemberUnknown.
        """
        for part in self.parts:
            if not part.form.is_valid():
                part.error = "; ".join(
                    str(each) for errors in part.form.errors.values() for each in errors
                )
                part.said = part.form.title
                continue
            part.policy = policy_of(
                part.form.kind,
                part.form.asked(),
                actor,
                market=self.choices.market,
                currency=self.choices.currency,
                now=now,
            )
            titles = {**self.choices.titles, **dict(self.choices.tenants)}
            part.said = event_text(part.policy, titles)
        return all(part.policy is not None for part in self.parts)

    @property
    def policies(self) -> Sequence[Asked]:
        """Return what is tried, in order."""
        return [part.policy for part in self.parts if part.policy is not None]

    @property
    def queries(self) -> list[str]:
        """Return how an address says each."""
        return [part.query for part in self.parts]

    @property
    def speaks_of_permissions(self) -> bool:
        """Tell if one of them says who may do what."""
        return any(part.form.kind in PERMISSIONS for part in self.parts)

    def refuse(self, at: int, refusal: Refusal) -> bool:
        """Put a refusal at the policy that it is about; tell if it was put at a field of it."""
        part = self.parts[at]
        part.error = refusals.whole(refusal)
        return part.form.refuse(refusal)

    def link(self, kind: str, said: Iterable[str] | None = None, **more: Any) -> str:
        """Return the address of a trial of these policies with an empty form of a kind."""
        pairs = [("with", query) for query in (self.queries if said is None else said)]
        rest = [(name, value) for name, value in more.items() if value not in (None, "")]
        return f"{TRY}?{urlencode([('kind', kind), *rest, *pairs])}"

    def link_parts(self, **more: Any) -> None:
        """Give each part its links: to change it in the form, and to leave it out."""
        for number, part in enumerate(self.parts):
            others = [query for n, query in enumerate(self.queries) if n != number]
            kind = part.form.kind
            change = self.link(kind, others, **more)
            part.links = {
                "change": f"{change}&{urlencode(part.form.sent)}" if part.form.sent else change,
                "leave_out": self.link(kind, others, **more),
            }
