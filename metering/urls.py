"""Where the API of use is, below /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, path

from metering.api.access import LeaseAccess
from metering.api.agent import (
    AgentAssignments,
    AgentHost,
    AgentLogs,
    AgentReports,
    AgentSamples,
    AgentSecrets,
)
from metering.api.agent_files import (
    AgentInputs,
    AgentOutputs,
    AgentOutputsFailed,
    AgentOutputsMissing,
)
from metering.api.agent_tokens import AgentEnrolment, AgentToken, AgentTokenTaken
from metering.api.agent_volumes import (
    AgentVolume,
    AgentVolumeFailed,
    AgentVolumeMissing,
    AgentVolumeVersions,
)
from metering.api.days import LeaseDays, UseDays
from metering.api.health import HostHealth, HostHealthHistory
from metering.api.idle import BidIdleRule, KeepIdleLease, LeaseIdle, TenantIdleRule
from metering.api.two_meters import LeaseHeartbeats, LeaseMeters
from metering.api.usage import (
    Agents,
    Heat,
    LeaseCorrections,
    LeaseGaps,
    LeaseUsage,
    LeaseUsageWindows,
)

api_urls: list[URLPattern] = [
    path("agent/host", AgentHost.as_view()),
    path("agent/assignments", AgentAssignments.as_view()),
    path("agent/reports", AgentReports.as_view()),
    path("agent/logs", AgentLogs.as_view()),
    path("agent/samples", AgentSamples.as_view()),
    path("agent/secrets", AgentSecrets.as_view()),
    path("agent/enrolment", AgentEnrolment.as_view()),
    path("agent/token", AgentToken.as_view()),
    path("agent/token/taken", AgentTokenTaken.as_view()),
    path("agent/leases/<uuid:lease_id>/inputs", AgentInputs.as_view()),
    path("agent/leases/<uuid:lease_id>/outputs", AgentOutputs.as_view()),
    path("agent/leases/<uuid:lease_id>/outputs/missing", AgentOutputsMissing.as_view()),
    path("agent/leases/<uuid:lease_id>/outputs/failed", AgentOutputsFailed.as_view()),
    path("agent/leases/<uuid:lease_id>/volumes/<str:volume>/read", AgentVolume.as_view()),
    path("agent/leases/<uuid:lease_id>/volumes/<str:volume>/missing", AgentVolumeMissing.as_view()),
    path(
        "agent/leases/<uuid:lease_id>/volumes/<str:volume>/versions", AgentVolumeVersions.as_view()
    ),
    path("agent/leases/<uuid:lease_id>/volumes/<str:volume>/failed", AgentVolumeFailed.as_view()),
    path("bids/<uuid:bid_id>/idle-rule", BidIdleRule.as_view()),
    path("idle-rule", TenantIdleRule.as_view()),
    path("leases/<uuid:lease_id>/idle", LeaseIdle.as_view()),
    path("leases/<uuid:lease_id>/idle/keep", KeepIdleLease.as_view()),
    path("hosts/<uuid:host_id>/health", HostHealth.as_view()),
    path("hosts/<uuid:host_id>/health/history", HostHealthHistory.as_view()),
    path("agents", Agents.as_view()),
    path("heat", Heat.as_view()),
    path("leases/<uuid:lease_id>/access", LeaseAccess.as_view()),
    path("leases/<uuid:lease_id>/heartbeats", LeaseHeartbeats.as_view()),
    path("leases/<uuid:lease_id>/meters", LeaseMeters.as_view()),
    path("leases/<uuid:lease_id>/usage", LeaseUsage.as_view()),
    path("usage/days", UseDays.as_view()),
    path("leases/<uuid:lease_id>/usage/days", LeaseDays.as_view()),
    path("leases/<uuid:lease_id>/usage/windows", LeaseUsageWindows.as_view()),
    path("leases/<uuid:lease_id>/usage/corrections", LeaseCorrections.as_view()),
    path("leases/<uuid:lease_id>/usage/gaps", LeaseGaps.as_view()),
]
