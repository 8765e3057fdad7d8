"""Whatever is sent, the API answers as it says it does, and never fails.

Requests are made up from the API's own description, well formed and not. Half of the ids in them
are those of things that exist, so that handlers are reached behind "there is no such thing".
Making a request up costs more than answering it: the suite asks each operation a few times, always
the same, and the soak asks more often and for every boundary of every field.
OFFPEAK_FUZZ_EXAMPLES asks another number of times, differently each time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import islice
from typing import Any

import pytest
import schemathesis
from django.conf import settings
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.urls import URLPattern
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from bursting.urls import api_urls as bursting
from config.wsgi import application
from ledger.urls import api_urls as ledger
from listings.urls import api_urls as listings
from marketplace.urls import api_urls as marketplace
from metering.urls import api_urls as metering
from tests.access.conftest import Caller
from tests.access.world import Party, follow, found

pytestmark = pytest.mark.django_db

EXAMPLES = {GenerationMode.POSITIVE: 3, GenerationMode.NEGATIVE: 2}
"""How often each operation is asked: what it wants, and what it must refuse."""
SOAK_EXAMPLES = dict.fromkeys(GenerationMode, 25)
BOUNDARIES_MAX = 300
"""Requests at the boundaries of one operation's fields; most have fewer."""
APPS: Mapping[str, list[URLPattern]] = {
    "ledger": ledger,
    "listings": listings,
    "marketplace": marketplace,
    "metering": metering,
    "bursting": bursting,
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def party(monkeypatch: pytest.MonkeyPatch) -> Party:
    """An organisation with something of every kind, which may ask as often as it likes."""
    monkeypatch.setattr(settings, "ENV", replace(settings.ENV, throttle_per_minute=10**9))
    party = found("fuzzed")
    follow()
    return party


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as undo:
        yield undo


@pytest.fixture
def api(party: Party, undo: ExitStack) -> schemathesis.BaseSchema:
    """The description of the API, with ids that exist among those that it is asked with."""
    described = schemathesis.openapi.from_dict(json.loads(description()))
    described.app = application
    # As Django's own test client does: the connection holds this test's transaction.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
        undo.callback(signal.connect, close_old_connections)
    described.hook("map_path_parameters")(existing_of(party))
    described.hook("map_body")(existing_of(party))
    return described


@cache
def description() -> str:
    """Return the API's description: the same for every test, and seconds to write."""
    written = StringIO()
    call_command("spectacular", format="openapi-json", stdout=written)
    return written.getvalue()


def existing_of(party: Party) -> Callable[[Any, Any], Any]:
    def existing(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: str(party.ids[name])
            if name in party.ids and sum(str(value).encode(errors="replace")) % 2
            else existing(value)
            for name, value in values.items()
        }

    return lambda context, values: existing(values)


Operation = schemathesis.APIOperation[Any, Any, Any, Any]
Ask = Callable[[Operation, Caller], None]


@pytest.mark.parametrize("app", APPS)
def test_every_route_answers_as_it_says(
    app: str, api: schemathesis.BaseSchema, party: Party
) -> None:
    ask_all(api, party, lambda operation, caller: fuzz(operation, EXAMPLES, caller), app=app)


@pytest.mark.soak
@pytest.mark.parametrize("app", APPS)
def test_every_route_answers_as_it_says_to_many(
    app: str, api: schemathesis.BaseSchema, party: Party
) -> None:
    ask_all(api, party, lambda operation, caller: fuzz(operation, SOAK_EXAMPLES, caller), app=app)


@pytest.mark.soak
@pytest.mark.parametrize("app", APPS)
def test_every_route_answers_as_it_says_at_every_boundary(
    app: str, api: schemathesis.BaseSchema, party: Party
) -> None:
    existing = existing_of(party)

    def ask(operation: Operation, caller: Caller) -> None:
        cases = api.iter_coverage_cases(
            operation,
            generation_modes=list(GenerationMode),
            generation_config=api.config.generation_for(operation=operation),
        )
        for case in islice(cases, BOUNDARIES_MAX):
            case.path_parameters = existing(None, case.path_parameters)
            one(case, caller)

    ask_all(api, party, ask, app=app)


def ask_all(api: schemathesis.BaseSchema, party: Party, ask: Ask, *, app: str) -> None:
    """Ask every operation of an app; tell of all that answer otherwise than they say."""
    routes = {"/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(each.pattern)) for each in APPS[app]}
    wrong: list[str] = []
    met = set()
    for found_or_not in api.get_all_operations():
        assert isinstance(found_or_not, Ok)
        operation = found_or_not.ok()
        if operation.path in routes:
            met.add(operation.path)
            agent = operation.path.startswith("/api/v1/agent/")
            try:
                ask(operation, party.agent if agent else party.caller)
            except FailureGroup as failures:
                wrong.append(f"{operation.label}\n{failures}")
    assert met == routes
    assert not wrong, "\n\n".join(wrong)


def fuzz(operation: Operation, examples: Mapping[GenerationMode, int], caller: Caller) -> None:
    """Ask one operation often, rightly and wrongly."""
    fixed = "OFFPEAK_FUZZ_EXAMPLES" not in os.environ
    for mode in GenerationMode:

        @hypothesis_settings(
            max_examples=int(os.environ.get("OFFPEAK_FUZZ_EXAMPLES", examples[mode])),
            derandomize=fixed,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case[Any]) -> None:
            one(case, caller)

        ask()


def one(case: schemathesis.Case[Any], caller: Caller) -> None:
    """Ask once, and take back what that wrote."""
    with transaction.atomic():
        case.call_and_validate(headers={"Authorization": f"Bearer {caller.token}"}, checks=CHECKS)
        transaction.set_rollback(True)
