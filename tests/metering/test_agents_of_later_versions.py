"""What an agent of a later version says beyond the market's own: taken, or set aside and noted."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from marketplace.storage.logs import OpenLogs
from metering.agent import wire
from metering.ingest.contacts import LATER_AGENT
from metering.models import HealthEvent, IngestAlarm, Interval
from tests.metering.agent_since import agent as agent
from tests.metering.agent_since import since as since
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]

MINUTE = timedelta(minutes=1)


def noted() -> list[tuple[str, str]]:
    alarms = IngestAlarm.objects.filter(code=LATER_AGENT).order_by("id")
    return [(each.details["place"], each.details["said"]) for each in alarms]


def test_use_is_stored_without_what_is_not_known_of_it(agent: HostAgent, since: datetime) -> None:
    agent.register()

    for _ in range(2):
        answer = agent.send(7, since, since + MINUTE, heat_mj=5)
        assert (answer.status_code, answer.json()) == (200, {"acknowledged_seq": 7})

    assert Interval.objects.count() == 1
    assert noted() == [("batch[].heat_mj", "")]
    assert IngestAlarm.objects.get().details["agent_version"] == "1.0"


def test_a_kind_of_health_event_that_is_not_known_holds_no_use_up(
    agent: HostAgent, since: datetime
) -> None:
    sent = agent.send(7, since, since + MINUTE)
    event = {"seq": 8, "gpu_uuid": "GPU-a", "at": since.isoformat(), "detail": "louder"}
    body = {
        "boot_id": str(agent.boot_id),
        "batch": [],
        "health": [event | {"kind": "fans-of-tomorrow-are-louder"}],
    }

    answers = [agent.call("POST", wire.SAMPLES_PATH, body) for _ in range(2)]

    assert sent.status_code == 200
    assert [each.json() for each in answers] == [{"acknowledged_seq": 8}] * 2
    assert HealthEvent.objects.get().kind == "fans-of-tomorrow-are"


def test_a_report_of_an_unknown_kind_is_noted_and_the_next_one_is_heard(
    agent: HostAgent, since: datetime
) -> None:
    agent.register()
    first = {
        "report_id": str(UUID(int=6)),
        "lease_id": str(agent.lease_id),
        "what": "hibernated",
        "at": since.isoformat(),
        "exit_code": None,
        "detail": "",
    }
    both = [first, first | {"report_id": str(UUID(int=7)), "what": "started"}]
    body = {"boot_id": str(agent.boot_id), "reports": both}

    answer = agent.call("POST", wire.REPORTS_PATH, body)

    assert (answer.status_code, answer.json()) == (200, {"accepted": 1})
    assert noted() == [("reports[].what", "hibernated")]
    alone = agent.call("POST", wire.REPORTS_PATH, body | {"reports": [first]})
    assert alone.json() == {"accepted": 0}
    assert len(noted()) == 1


def test_a_registration_says_more_than_is_known(agent: HostAgent) -> None:
    answer = agent.register(rooms=3, taking="on-sundays", abilities=["time-travel"])

    assert answer.status_code == 200
    assert sorted(noted()) == [("rooms", ""), ("taking", "on-sundays")]


def test_a_stream_that_is_not_known_is_refused_alone(
    agent: HostAgent, since: datetime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = OpenLogs(tmp_path / "logs")
    monkeypatch.setattr("metering.api.agent.default_logs", lambda: logs)
    piece = {"lease_id": str(agent.lease_id), "attempt": 1, "offset": 0, "data": ""}
    said = [piece | {"stream": each} for each in ("stdtrace", "stdout")]

    answer = agent.call("POST", wire.LOGS_PATH, {"pieces": said})

    assert answer.status_code == 200
    told = [(each["stream"], each["outcome"]) for each in answer.json()["pieces"]]
    assert told == [("stdtrace", "refused"), ("stdout", "taken")]


def test_no_more_is_noted_of_one_host_than_people_can_read(
    agent: HostAgent, since: datetime
) -> None:
    agent.register()
    many = {f"field_{number}": 1 for number in range(70)}

    assert agent.send(7, since, since + MINUTE, **many).status_code == 200

    assert len(noted()) == 50
