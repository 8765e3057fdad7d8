"""A server that speaks EC2: moto's, held to what the real one promises about tokens and limits.

moto stores a client token and starts a second instance all the same; takes any instance type;
knows no want of capacity, no quota, no delay, no spot notice. All that is added here in front of
it, scripted through `faults`, with a log of what was asked.
"""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterable
from itertools import count
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from bursting.clouds.faults import Faults, Verb
from tests.moto_cloud import answers

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

ACCOUNTS = count(100_000_000_001)
Form = dict[str, str]
Answer = tuple[str, bytes]
"""HTTP status line and body."""


class _Silent(MotoRequestHandler):
    def log_request(self, *_args: Any, **_kwargs: Any) -> None:
        pass


class MotoCloud:
    """One empty EC2 account on a free port of 127.0.0.1, served from `start` until `stop`.

    faults: what shall go wrong; `find` and `describe` are told apart by the filter instance-id.
    requests: the parameters of every request, oldest first.
    answers_to_cut: how many of the next answers are lost: the request is carried out and the
        connection closed.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        # Its 1,301 machine images take seconds to load and are of no use here.
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        self.faults = faults or Faults()
        self.requests: list[Form] = []
        self.answers_to_cut = 0
        self._account = str(next(ACCOUNTS))
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._launches: dict[str, tuple[Form, Answer]] = {}
        self._alive: set[str] = set()
        self._ended: set[str] = set()
        self._lock = RLock()
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Silent)
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.02,), name="moto-cloud", daemon=True
        )

    @property
    def url(self) -> str:
        """The address to give as EC2's endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the server and its thread."""
        self._server.shutdown()
        self._thread.join(timeout=10)
        self._server.server_close()

    def asked(self, action: str) -> list[Form]:
        """Return the requests for one action, oldest first."""
        return [form for form in self.requests if form["Action"] == action]

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer one HTTP request."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        raw = environ["wsgi.input"].read(length)
        form = dict(parse_qsl(raw.decode(), keep_blank_values=True))
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self._account
        with self._lock:
            self.requests.append(form)
            failure = self._failure(form)
            if failure == "before":
                status, body = _refuse("InternalError", "An internal error has occurred", 500)
            else:
                status, body = self._answer(form, environ, raw)
            if failure == "after":
                status, body = _refuse("InternalError", "An internal error has occurred", 500)
            is_cut = self.answers_to_cut > 0
            self.answers_to_cut -= is_cut
        if is_cut:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(status, [("Content-Type", "text/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def _failure(self, form: Form) -> str | None:
        verbs: dict[str, Verb] = {
            "RunInstances": "launch",
            "TerminateInstances": "terminate",
            "DescribeInstanceTypeOfferings": "offers",
            "DescribeSpotInstanceRequests": "interruptions",
            "DescribeInstances": "describe"
            if form.get("Filter.1.Name") == "instance-id"
            else "find",
        }
        verb = verbs.get(form["Action"])
        return self.faults.called(verb) if verb is not None else None

    def _answer(self, form: Form, environ: WSGIEnvironment, raw: bytes) -> Answer:
        match form["Action"]:
            case "RunInstances":
                return self._run(form, environ, raw)
            case "TerminateInstances":
                return self._terminate(form, environ, raw)
            case "DescribeInstances":
                status, body = self._ask_moto(environ, raw)
                told = answers.retold(body, self._state)
                self.faults.poll(self._ended)
                return status, told
            case "DescribeSpotInstanceRequests":
                alive = [n for n in self.faults.notices if n.instance_id in self._alive]
                return "200 OK", answers.spot_requests(alive)
            case _:
                return self._ask_moto(environ, raw)

    def _run(self, form: Form, environ: WSGIEnvironment, raw: bytes) -> Answer:
        token = form.get("ClientToken", "")
        if token in self._launches:
            first, answer = self._launches[token]
            if first != form:
                return _refuse("IdempotentParameterMismatch", "The token had other parameters")
            if not self._alive.intersection(answers.instance_ids(answer[1])):
                return _refuse("IdempotentInstanceTerminated", "That instance has terminated")
            return answer
        if form["InstanceType"] not in INSTANCE_TYPES:
            return _refuse("InvalidParameterValue", f"Invalid type: {form['InstanceType']}")
        if self.faults.quota is not None and len(self._alive) >= self.faults.quota:
            return _refuse("VcpuLimitExceeded", "You have requested more vCPU than allowed")
        if not self.faults.take_room(form["Placement.AvailabilityZone"]):
            return _refuse("InsufficientInstanceCapacity", "Not enough in this zone", 500)
        status, body = self._ask_moto(environ, raw)
        if not status.startswith("200"):
            return status, body
        for instance_id in answers.instance_ids(body):
            self.faults.born(instance_id)
            self._alive.add(instance_id)
        answer = status, answers.retold(body, lambda _instance_id, told: told)
        if token:
            self._launches[token] = form, answer
        return answer

    def _terminate(self, form: Form, environ: WSGIEnvironment, raw: bytes) -> Answer:
        asked = {value for key, value in form.items() if key.startswith("InstanceId.")}
        if unseen := [key for key in asked if self.faults.is_invisible(key)]:
            return _refuse("InvalidInstanceID.NotFound", f"These do not exist: {unseen}")
        status, body = self._ask_moto(environ, raw)
        if status.startswith("200"):
            self._ended |= self._alive & asked
            self._alive -= asked
        return status, body

    def _state(self, instance_id: str, told: str) -> str | None:
        if self.faults.is_invisible(instance_id):
            return None
        if instance_id in self._ended:
            return "shutting-down" if self.faults.is_lingering(instance_id) else "terminated"
        return "pending" if self.faults.is_pending(instance_id) else told

    def _ask_moto(self, environ: WSGIEnvironment, raw: bytes) -> Answer:
        statuses: list[str] = []

        def start(status: str, _headers: object, _exc_info: object = None) -> Any:
            statuses.append(status)

        environ["wsgi.input"] = io.BytesIO(raw)
        body = b"".join(self._moto(environ, start))
        return statuses[-1], body


def _refuse(code: str, message: str, status: int = 400) -> Answer:
    return f"{status} Refused", answers.error(code, message)
