"""Agent and market of different versions: what one knows and the other not holds nothing up."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from metering.agent import later, wire, wire_of_tokens, wire_of_work
from metering.agent.strict import Between, Length, Message, dump, parse
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment

NEW = "field_of_tomorrow"
SECOND = 1_000
MODULES = (wire, wire_of_work, wire_of_tokens)
MESSAGES = sorted(
    {
        each
        for module in MODULES
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Message) and each is not Message
    },
    key=lambda each: each.__name__,
)
TEXTS = {
    "starts_at": "2026-01-05T12:00:00Z",
    "ends_at": "2026-01-05T13:00:00Z",
    "start_ms": NOON_MS,
    "end_ms": NOON_MS + 1000,
    "granted_ms": 1000,
    "data": "",
    "public_key": "A" * 44,
    "sha256": "0" * 64,
    "manifest": "0" * 64,
}


def example(kind: Any, name: str = "", bounds: tuple[Any, ...] = ()) -> Any:
    """Return the JSON of a value of a type of the wire, with one item in each list."""
    if name in TEXTS:
        return TEXTS[name]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return example(arguments[0], name, arguments[1:])
    if origin in (Union, UnionType):
        (inner,) = [each for each in arguments if each is not NoneType]
        return example(inner, name)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        item = example(arguments[0])
        return ["0" * 64] if item == "aaa" and name == "blobs" else [item]
    if isinstance(kind, type) and issubclass(kind, Message):
        return object_of(kind)
    if kind is int:
        return next((each.low for each in bounds if isinstance(each, Between)), 1)
    if kind is str:
        least = next((each.low for each in bounds if isinstance(each, Length)), 1)
        return "a" * max(least, 3)
    simple = {bool: True, UUID: str(UUID(int=7)), datetime: "2026-01-05T12:00:00Z"}
    return simple.get(kind, {})


def object_of(kind: type[Message]) -> dict[str, Any]:
    every: Any = kind
    hints = get_type_hints(kind, include_extras=True)
    found = {each.name: example(hints[each.name], each.name) for each in fields(every)}
    if kind is wire.Interval:
        found |= {"occupied_ms": 0, "busy_ms": 0}
    if kind is wire.Health:
        found["seq"] = 2
    if kind is wire_of_work.Source:
        found |= {"url": "https://a.example/b.git", "sha256": ""}
    return found


def added(data: Any) -> Any:
    """Return a value with a field that nobody knows in each of its objects."""
    if isinstance(data, list):
        return [added(each) for each in data]
    if isinstance(data, dict) and data:
        return {**{name: added(item) for name, item in data.items()}, NEW: {"and": "more"}}
    return data


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_field_that_is_not_known_is_left_out_of_every_message_and_noted(
    kind: type[Message],
) -> None:
    known = object_of(kind)

    message, beyond = later.read(kind, added(known))

    assert message == kind.from_json(known)
    assert beyond
    assert all(each.place.endswith(NEW) for each in beyond)


def needed(kind: Any) -> list[str]:
    return [each.name for each in fields(kind) if each.default is MISSING]


@pytest.mark.parametrize("kind", filter(needed, MESSAGES), ids=lambda kind: kind.__name__)
def test_what_is_missing_is_refused_though_something_new_is_there(kind: type[Message]) -> None:
    first, *_ = needed(kind)
    short = {name: item for name, item in added(object_of(kind)).items() if name != first}

    with pytest.raises(wire.WireError, match="is missing"):
        later.read(kind, short)


@pytest.mark.parametrize(
    ("kind", "name", "cautious"),
    [
        (wire.Registration, "taking", "paused"),
        (wire.Assignments, "taking", "paused"),
        (wire.LogPieceTaken, "outcome", "closed"),
    ],
)
def test_a_word_that_is_not_known_is_taken_for_a_cautious_one(
    kind: type[Message], name: str, cautious: str
) -> None:
    message, beyond = later.read(kind, {**object_of(kind), name: "upside-down"})

    assert getattr(message, name) == cautious
    assert [(each.place, each.said) for each in beyond] == [(name, "upside-down")]


def test_a_kind_of_health_event_that_is_not_known_is_taken_as_it_is() -> None:
    batch = object_of(wire.SampleBatch)
    batch["health"][0]["kind"] = "fan-sings"

    message, beyond = later.read(wire.SampleBatch, batch)

    assert message.health[0].kind == "fan-sings"
    assert not beyond


def test_a_report_of_an_unknown_kind_is_set_aside_and_the_others_are_taken() -> None:
    report = object_of(wire.Report)
    batch = {"boot_id": str(UUID(int=1)), "reports": [{**report, "what": "moved"}, report]}

    message, beyond = later.read(wire.ReportBatch, batch)

    assert [each.what for each in message.reports] == [report["what"]]
    (noted,) = beyond
    assert (noted.place, noted.said, noted.index) == ("reports[].what", "moved", 0)


def test_a_report_that_is_wrong_is_still_refused() -> None:
    report = object_of(wire.Report)
    batch = {"boot_id": str(UUID(int=1)), "reports": [{**report, "exit_code": 4000, NEW: 1}]}

    with pytest.raises(wire.WireError, match="from -255"):
        later.read(wire.ReportBatch, batch)


def newer(rig: Rig, change: dict[str, Any], *, of: UUID | None = None) -> None:
    """Have the market add to what it says of its assignments."""
    said = rig.market.answer

    def answer(method: str, path: str, body: bytes) -> Message:
        told = said(method, path, body)
        return _Raw({**told.to_json(), **(change if of is None else {})}, of, change)

    rig.market.answer = answer  # type: ignore[method-assign]


class _Raw(Message):
    def __init__(self, data: dict[str, Any], of: UUID | None, change: dict[str, Any]) -> None:
        self._data = data
        for each in data.get("assignments", ()):
            if of is not None and each["lease_id"] == str(of):
                each |= change

    def to_json(self) -> dict[str, Any]:
        return self._data


def test_an_agent_goes_on_beside_a_market_that_says_more_in_every_answer(
    simulated_rig: Rig,
) -> None:
    rig = simulated_rig
    newer(rig, {NEW: ["x"]})
    lease = rig.market.assign(assignment(rig.uuids()[0], now_ms=NOON_MS, command=("sleep", "30")))

    rig.steps(120)

    assert [each.what for each in rig.market.told(lease)] == ["started", "exited"]
    assert sum(each.granted_ms for each in rig.market.intervals(lease)) == 30 * SECOND
    assert rig.agent.courier.trouble == ""


def test_a_lease_that_asks_for_what_is_not_known_fails_alone_and_says_so(
    simulated_rig: Rig,
) -> None:
    rig = simulated_rig
    first, second = rig.uuids()[:2]
    odd = rig.market.assign(assignment(first, now_ms=NOON_MS, command=("sleep", "30")))
    plain = rig.market.assign(assignment(second, now_ms=NOON_MS, command=("sleep", "30")))
    newer(rig, {"runtime": "enclave"}, of=odd)

    rig.steps(120)

    (failed,) = rig.market.told(odd)
    assert failed.what == "failed"
    assert "older than the market" in failed.detail
    assert "enclave" in failed.detail
    assert [each.what for each in rig.market.told(plain)] == ["started", "exited"]


def test_work_goes_on_while_the_market_says_of_it_what_is_not_known(simulated_rig: Rig) -> None:
    rig = simulated_rig
    lease = rig.market.assign(
        assignment(rig.uuids()[0], now_ms=NOON_MS, command=("sleep", "600"), seconds=60)
    )
    rig.steps(5)
    newer(rig, {"phase": "hibernate"}, of=lease)
    rig.steps(20)
    before = [each.what for each in rig.market.told(lease)]
    rig.restart()
    rig.steps(20)

    assert before == [each.what for each in rig.market.told(lease)] == ["started"]

    rig.steps(100)  # until its terms, as they were last known, are over
    assert [each.what for each in rig.market.told(lease)] == ["started", "stopped"]


class OlderMarket:
    """Refuses, with the place, what a market of before does not know, as that does."""

    def __init__(self, rig: Rig, places: dict[str, set[str]], kinds: set[str]) -> None:
        self._said, self._places, self._kinds = rig.market.answer, places, kinds
        rig.market.answer = self.answer  # type: ignore[method-assign]

    def answer(self, method: str, path: str, body: bytes) -> Message:
        data: Any = parse(body) if body else {}
        for name in self._places.get("", set()) & set(data):
            raise wire.WireError("is not a known field", name)
        for of in ("batch", "health", "reports"):
            for index, each in enumerate(data.get(of, ())):
                for name in self._places.get(of, set()) & set(each):
                    raise wire.WireError("is not a known field", f"{of}[{index}].{name}")
                word = each.get("kind") or each.get("what")
                if word in self._kinds:
                    raise wire.WireError(
                        "must be one of xid",
                        f"{of}[{index}].{'kind' if of == 'health' else 'what'}",
                    )
        return self._said(method, path, body)


def test_use_is_billed_by_a_market_that_knows_neither_a_field_nor_a_kind(
    simulated_rig: Rig,
) -> None:
    rig = simulated_rig
    OlderMarket(
        rig,
        {"": {"enforces", "abilities", "sandbox"}, "batch": {"cpu_ms", "io_bytes", "net_bytes"}},
        {"cleaned", "fetching"},
    )
    leases = [
        rig.market.assign(assignment(uuid, now_ms=NOON_MS, command=("sleep", "30")))
        for uuid in rig.uuids()
    ]

    rig.steps(120)

    assert rig.market.registrations[-1].abilities == ()
    for lease in leases:
        assert sum(each.granted_ms for each in rig.market.intervals(lease)) == 30 * SECOND
        assert [each.what for each in rig.market.told(lease)] == ["started", "exited"]
    rig.market.desired.clear()
    rig.steps(10)
    aside = (rig.state_dir / "refused.jsonl").read_text().splitlines()
    assert {json.loads(each)["message"]["kind"] for each in aside} == {"cleaned"}
    assert rig.agent.status()["server"]["set_aside"] == len(aside) == len(leases)


def test_what_is_as_usual_is_not_said_to_a_market_that_may_not_know_it() -> None:
    registration = wire.Registration(agent_version="9", boot_id=UUID(int=1), hostname="h", gpus=())

    assert set(registration.to_json()) == {"agent_version", "boot_id", "hostname", "gpus"}
    assert set(wire.Assignments(server_time=datetime.now(UTC), assignments=()).to_json()) == {
        "server_time",
        "assignments",
    }
    assert wire.Registration.from_json(parse(dump(registration.to_json()))) == registration
    assert "taking" in replace(registration, taking="paused").to_json()
