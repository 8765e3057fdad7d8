"""How the consumer of a lease reaches its running work, for its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port

from ledger.access import Actor
from marketplace.models.leases import LeaseRow
from metering.domain.access import PORT_MAX, Permit
from metering.domain.work_names import ENTER, name_of
from metering.ingest.handing_over import hand_over
from metering.queries.access import Reach, reach


@dataclass(frozen=True, slots=True)
class Connect:
    """What can be reached on the hosts of a lease, and the command lines for it."""

    hosts: list[Reach]
    idle: timedelta
    shell: str
    port: str
    is_in_browser: bool

    @property
    def connections(self) -> int:
        """Return how many are open."""
        return sum(each.connections for each in self.hosts)


def connect_of(actor: Actor, row: LeaseRow) -> Connect | None:
    """Return how to reach the work; None where nothing of it runs, or it is somebody else's."""
    if row.tenant_id != actor.tenant_id or not actor.may("leases:write"):
        return None
    hosts = [each for each in reach(actor, row.lease_id) if each.runs]
    if not hosts:
        return None
    open_ones = [each for each in hosts if each.allowed != "off"]
    lease = str(row.lease_id)
    return Connect(
        hosts=hosts,
        idle=timedelta(seconds=settings.ENV.access_idle_seconds),
        shell=f"offpeak ssh {lease}" if any(e.allowed == "shell" for e in open_ones) else "",
        port=f"offpeak port-forward {lease} 8888" if open_ones else "",
        is_in_browser=bool(open_ones and settings.ENV.work_domain),
    )


class PortForm(forms.Form):
    """Which port of the work is opened."""

    port = forms.IntegerField(label="Port", min_value=1, max_value=PORT_MAX, initial=8888)


def address_of(request: HttpRequest, permit: Permit) -> str:
    """Return where a browser goes to use a port: a name of the work's own, with a hand-over."""
    name = name_of(permit.lease_id, permit.port, settings.ENV.work_domain)
    _host, port = split_domain_port(request.get_host())
    scheme = "https" if request.is_secure() else "http"
    at = f"{scheme}://{name}{f':{port}' if port else ''}"
    return f"{at}{ENTER}?{urlencode({'token': hand_over(permit)})}"
