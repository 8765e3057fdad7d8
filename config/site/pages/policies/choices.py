"""What the forms of policies offer to choose from: names for the ids that policies hold."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.access import Actor
from ledger.eventstore import default_store
from ledger.queries.parties import members_seen, people, tenants, unit_tenants, unit_titles
from marketplace.fairness.choices import Governed, governed

Options = list[tuple[str, str]]
SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of one actor in one market; each an id or name, and how people call it.

    cohorts: those the actor may put units into. nodes: what may have a quota of the actor's
    setting. tenants, persons: with `is_platform` all, else only of the own organisation.
    """

    market: str
    currency: str
    is_platform: bool
    governed: Governed
    titles: dict[str, str]
    cohorts: Options
    units: Options
    nodes: Options
    tenants: Options
    persons: Options

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of GPUs to name."""
        return self.governed.classes


def choices_of(actor: Actor, market: str, currency: str) -> Choices:
    """Return what `actor` may choose from in a market."""
    found = governed(default_store(), actor, market=market)
    owners = {str(row.tenant_id): row.title for row in tenants(actor)[:SHOWN_MAX]}
    titles = {str(unit): title for unit, title in unit_titles(actor).items()}
    of_tenant = {str(unit): str(whose) for unit, whose in unit_tenants(actor).items()}

    def named(unit: str) -> str:
        owner = owners.get(of_tenant.get(unit, ""), "") if actor.sees_all else ""
        return f"{titles[unit]} ({owner})" if owner else titles[unit]

    units = sorted(((unit, named(unit)) for unit in titles), key=lambda pair: pair[1].casefold())
    mine = [
        each.cohort for each in found.cohorts if actor.sees_all or each.tenant_id == actor.tenant_id
    ]
    cohorts = [(name, name) for name in mine]
    placed = {str(each.subscriber_id) for each in found.units}
    of_cohorts = [(name, f"{name} (cohort)") for name in mine] if actor.sees_all else []
    unseen = [(unit, unit) for unit in sorted(placed - titles.keys())]
    return Choices(
        market=market,
        currency=currency,
        is_platform=actor.sees_all,
        governed=found,
        titles=titles,
        cohorts=cohorts,
        units=units,
        nodes=[*of_cohorts, *(pair for pair in units if pair[0] in placed), *unseen],
        tenants=sorted(owners.items(), key=lambda pair: pair[1].casefold()),
        persons=_persons(actor),
    )


def _persons(actor: Actor) -> Options:
    rows = list(members_seen(actor)[:SHOWN_MAX])
    known = people({row.user_id for row in rows})
    named = {
        str(row.user_id): f"{known[row.user_id].title} ({row.tenant_title})"
        for row in rows
        if row.user_id in known
    }
    return sorted(named.items(), key=lambda pair: pair[1].casefold())
