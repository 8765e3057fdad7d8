"""What the agent of a host calls. Messages are `metering.agent.wire`'s, on both sides.

A message that is wrong is refused with 409 or 422, for good; 401, 403 and 404 are about the token
or the host as a whole; what may succeed later (425, 429, 503) the agent sends again.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar, cast

import structlog
from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.domain.ids import HostId, LeaseId
from ledger.domain.refusal import Invalid, Refusal
from ledger.rest import Endpoint
from ledger.rest.problems import answer_problem, field_problems
from ledger.vault import default_vault
from listings.queries import told_to_agent
from marketplace.domain.bids.sources import read_source
from marketplace.logs import default_logs
from marketplace.queries.leases import Assignment, assignments_for
from marketplace.secrets import handed_out
from metering.agent import later, sealing, wire
from metering.agent.strict import Message
from metering.ingest.contacts import note_beyond, note_seen, raise_alarm, register_agent
from metering.ingest.grants import Grants
from metering.ingest.logs import take_logs, with_refused
from metering.ingest.reports import ReportConflict, take_reports
from metering.ingest.samples import SampleConflict, take_samples

M = TypeVar("M", bound=Message)
GRANTS = Grants()

log = structlog.get_logger()


class MessageUnreadable(Invalid):
    """The message is not what agent and server agreed on: `place` says where, `reason` why.

    Bring the agent to the server's version.
    """


class AgentEndpoint(Endpoint):
    """A handler that only the agent of a host may call."""

    scopes: ClassVar = {}
    beyond: tuple[later.Beyond, ...] = ()

    @property
    def host_id(self) -> HostId:
        """Return the host whose agent asks; its token is good for no other."""
        host_id = self.actor.host_id
        assert host_id is not None, "the scope `agent` is for the tokens of hosts alone"
        return host_id

    def message(self, kind: type[M]) -> M:
        """Read the request's body; what a later agent says beyond this version is noted.

        Raises: MessageUnreadable.
        """
        try:
            message, beyond = later.read(kind, self.request.data)
        except wire.WireError as error:
            raise MessageUnreadable(place=error.place, reason=error.reason) from error
        except ValidationError as error:
            first = next(field_problems(error.get_full_details(), ""))
            raise MessageUnreadable(place=first["pointer"], reason=first["detail"]) from error
        self.beyond = beyond
        if beyond and self.actor.host_id is not None:
            note_beyond(beyond, host_id=self.actor.host_id, now=timezone.now())
        return message

    def note_seen(self) -> None:
        """Note that the agent was heard."""
        note_seen(host_id=self.host_id, tenant_id=self.actor.tenant_id, now=timezone.now())

    def alarmed(self, refusal: Refusal) -> Response:
        """Answer a refusal that people must hear of.

        Answered, not raised: raising would undo the alarm together with the request.
        """
        now = timezone.now()
        raise_alarm(refusal, host_id=self.host_id, tenant_id=self.actor.tenant_id, now=now)
        return answer_problem(refusal, instance=self.request.path, request_id=str(self.request_id))


class AgentHost(AgentEndpoint):
    """What a host has."""

    scopes: ClassVar = {"PUT": "agent"}
    reads: ClassVar = ("listings.hosts",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def put(self, request: Request) -> Response:
        """Say what this host has; sent when the agent starts and when something changed."""
        self.note_seen()
        registration, now = self.message(wire.Registration), timezone.now()
        register_agent(
            self.store(),
            registration,
            host_id=self.host_id,
            tenant_id=self.actor.tenant_id,
            by=self.meta(),
            now=now,
        )
        answer = wire.Registered(
            host_id=self.host_id,
            sample_seconds=settings.ENV.agent_sample_seconds,
            poll_seconds=settings.ENV.agent_poll_seconds,
            server_time=now,
        )
        return Response(answer.to_json())


class AgentAssignments(AgentEndpoint):
    """What should run on a host."""

    scopes: ClassVar = {"GET": "agent"}
    reads: ClassVar = ("marketplace.leases", "listings.hosts")

    @extend_schema(responses=dict[str, Any], tags=["agent"])
    def get(self, request: Request) -> Response:
        """Tell the desired state; a lease that is not in it is to be stopped."""
        self.note_seen()
        return Response(assignments_of(self.host_id).to_json())


def assignments_of(host_id: HostId) -> wire.Assignments:
    """Return what a host's agent is told to run."""
    knows_hand, on_market = told_to_agent(host_id)
    spoken = (_spoken(each, knows_hand) for each in assignments_for(host_id))
    return wire.Assignments(
        server_time=timezone.now(),
        assignments=tuple(each for each in spoken if each is not None),
        taking=cast(wire.Taking, on_market) if knows_hand else "all",
    )


def _spoken(wanted: Assignment, knows_hand: bool = False) -> wire.Assignment | None:
    """Put one assignment into the agent's words.

    knows_hand: it is told the notice and the level, which agents of before would not read.
    One that cannot be put so is left out and logged: that lease fails for want of a start, and
    the host's other leases go on.
    """
    try:
        return wire.Assignment.from_json(
            {
                "lease_id": wanted.lease_id,
                "gpu_uuids": wanted.gpu_uuids,
                "starts_at": wanted.starts_at,
                "ends_at": wanted.ends_at,
                "phase": wanted.phase,
                "stop_at": wanted.stop_at,
                "grace_seconds": wanted.grace_seconds,
                "runtime": wanted.runtime,
                "command": wanted.command,
                "environment": wanted.environment,
                "workload_kind": wanted.workload_kind,
                "tenant": wanted.tenant_id,
                "image": wanted.image,
                "inputs": wanted.inputs,
                "outputs": wanted.outputs,
                "secrets": wanted.secrets,
                "secret_variables": wanted.secret_variables,
                "volumes": [asdict(each) for each in wanted.volumes],
                "notice_seconds": wanted.notice_seconds if knows_hand else None,
                "sandbox": wanted.sandbox if knows_hand else "",
                "source": _source(wanted),
            }
        )
    except wire.WireError as unfit:
        log.error("assignment.unfit", lease=str(wanted.lease_id), reason=str(unfit))
        return None


def _source(wanted: Assignment) -> dict[str, str] | None:
    """Return what the host fetches for the work; None: nothing."""
    if not wanted.fetch:
        return None
    return {**asdict(read_source(wanted.fetch)), "secret": wanted.fetch_secret}


class AgentSecrets(AgentEndpoint):
    """The secrets of work that is to run on a host."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    def _asked(self) -> None:
        """Keep no answer: each is for one attempt."""
        return None

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Hand them out, sealed for the pair that asks; only while the lease is to run here."""
        asked = self.message(wire.SecretsAsked)
        values = handed_out(
            self.store(),
            default_vault(),
            lease_id=LeaseId(asked.lease_id),
            host_id=self.host_id,
            attempt_id=asked.attempt_id,
            by=self.meta(),
            now=timezone.now(),
        )
        said = {name: b64encode(value).decode() for name, value in values.items()}
        attempt = f"{asked.lease_id} {asked.attempt_id}"
        try:
            public = b64decode(asked.public_key, validate=True)
            sealed = sealing.seal(public, attempt, json.dumps(said).encode())
        except ValueError:
            raise MessageUnreadable(place="public_key", reason="is no public key") from None
        answer = wire.SecretsSealed(
            lease_id=asked.lease_id,
            attempt_id=asked.attempt_id,
            sealed=b64encode(sealed).decode(),
        )
        return Response(answer.to_json())


class AgentReports(AgentEndpoint):
    """What became of leased work."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Take reports; one that was sent before counts once."""
        self.note_seen()
        try:
            accepted = take_reports(
                self.store(),
                GRANTS,
                self.message(wire.ReportBatch),
                host_id=self.host_id,
                by=self.meta(),
                now=timezone.now(),
            )
        except ReportConflict as conflict:
            return self.alarmed(conflict)
        return Response(wire.ReportsAccepted(accepted=accepted).to_json())


class AgentLogs(AgentEndpoint):
    """What leased work prints. `config.web.work_logs` takes most of it without Django."""

    scopes: ClassVar = {"POST": "agent"}
    one_append: ClassVar = True

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Take pieces of logs, each at its offset; a piece that is sent again counts once."""
        taken = take_logs(
            self.store(),
            GRANTS,
            default_logs(),
            self.message(wire.LogBatch),
            host_id=self.host_id,
            now=timezone.now(),
        )
        return Response(with_refused(taken, self.beyond).to_json())


class AgentSamples(AgentEndpoint):
    """What the GPUs did."""

    scopes: ClassVar = {"POST": "agent"}
    reads: ClassVar = ("marketplace.leases",)

    @extend_schema(request=dict[str, Any], responses=dict[str, Any], tags=["agent"])
    def post(self, request: Request) -> Response:
        """Take samples; (boot_id, seq) is unique for ever, so a resend is harmless."""
        self.note_seen()
        try:
            acknowledged = take_samples(
                self.store(),
                GRANTS,
                self.message(wire.SampleBatch),
                host_id=self.host_id,
                tenant_id=self.actor.tenant_id,
                now=timezone.now(),
            )
        except SampleConflict as conflict:
            return self.alarmed(conflict)
        return Response(wire.Acknowledged(acknowledged_seq=acknowledged).to_json())
