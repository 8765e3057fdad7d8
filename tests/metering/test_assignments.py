"""What a bid may say, an agent can be told; and one lease that cannot be told holds up no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.domain.tokens import TokenIsOver
from listings.domain.divisions import divide
from listings.domain.enrolments import EnrolmentCodeExpired, EnrolmentCodeUsed
from listings.domain.events import Division, Gpu
from listings.domain.hosts import HostIsRetired
from marketplace.domain.bids.bounds import CommandWithoutProgram, check_workload
from marketplace.domain.facts.events import Workload
from marketplace.domain.leases.outputs import InputsNotAsked, OutputsNotAsked, OutputsTooLate
from marketplace.domain.secrets.secret import LeaseNotToRun, SecretMissing, TooManyDeliveries
from marketplace.domain.volumes.volume import VolumeConflict, VolumeInUse
from marketplace.queries.leases import HOLD, Assignment
from metering.agent import wire
from metering.agent.shares import card_of, environment
from metering.api.agent import _spoken
from metering.api.agent_volumes import VolumeNotAsked
from metering.ingest.grants import LeaseNotHere
from metering.ingest.reports import ReportConflict
from metering.ingest.samples import SampleConflict
from tests.conftest import NOON

WORDS = st.lists(st.text(max_size=20), max_size=5).map(tuple)
VARIABLES = st.lists(
    st.tuples(st.text(max_size=8), st.text(max_size=20)), max_size=4, unique_by=lambda pair: pair[0]
).map(tuple)


def assignment(workload: Workload) -> Assignment:
    return Assignment(
        lease_id=LeaseId(UUID(int=1)),
        gpu_uuids=("GPU-1",),
        starts_at=NOON,
        ends_at=NOON.replace(hour=14),
        phase="run",
        stop_at=None,
        grace_seconds=15,
        runtime=workload.runtime,
        command=workload.command or HOLD,
        environment=dict(workload.environment),
        workload_kind=workload.kind,
    )


@given(command=WORDS, environment=VARIABLES)
def test_every_workload_that_a_bid_may_have_can_be_told_to_an_agent(
    command: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> None:
    workload = Workload(kind="other", command=command, environment=environment)
    try:
        check_workload(workload)
    except Refusal:
        return
    assert _spoken(assignment(workload)) is not None


def test_an_agent_is_told_of_a_share_all_that_it_must_know() -> None:
    card = Gpu(f"GPU-{UUID(int=7)}", "L4", 23_034, "8.9", "580.82.07")
    share = divide(card, Division("mps", 48 // 4))[10]

    told = _spoken(replace(assignment(Workload(kind="other")), gpu_uuids=(share.uuid,)))

    assert told is not None
    (uuid,) = told.gpu_uuids
    assert card_of(uuid) == card.uuid
    assert environment([uuid], Path("/run/mps")) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "8",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={23_034 // 12}M",
    }


def test_an_agent_of_before_is_told_nothing_that_it_does_not_know() -> None:
    image = f"127.0.0.1:5000/team/train@sha256:{'0a' * 32}"
    check_workload(Workload(kind="other", image=image))

    plain = _spoken(assignment(Workload(kind="other")))
    contained = _spoken(replace(assignment(Workload(kind="other")), image=image))

    assert plain is not None and "image" not in plain.to_json()
    assert contained is not None and contained.to_json()["image"] == image


def test_a_command_without_a_program_is_refused() -> None:
    with pytest.raises(CommandWithoutProgram):
        check_workload(Workload(kind="other", command=("", "x")))


def test_no_command_at_all_holds_the_gpus() -> None:
    told = _spoken(assignment(Workload(kind="other")))
    assert told is not None
    assert told.command == HOLD


def test_an_assignment_that_cannot_be_told_is_left_out() -> None:
    assert _spoken(assignment(Workload(kind="other", command=("",)))) is None


def test_agent_and_server_mean_the_same_by_a_refusal_for_good() -> None:
    refusals = (
        *(HostIsRetired, LeaseNotHere, ReportConflict, SampleConflict),
        *(InputsNotAsked, OutputsNotAsked, OutputsTooLate),
        *(SecretMissing, TooManyDeliveries, LeaseNotToRun),
        *(VolumeConflict, VolumeInUse, VolumeNotAsked),
        *(EnrolmentCodeUsed, EnrolmentCodeExpired, TokenIsOver),
    )

    assert {refusal().code for refusal in refusals} == wire.FINAL
    assert {refusal.status for refusal in refusals} == {409}
