"""Carries messages between the agent's state and the server; what fails is tried again later."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID

from .backoff import Backoff
from .clock import Clock
from .handing import Handing
from .memory import unread_report
from .reconcile import epoch_ms
from .spool import Record
from .state import AgentState
from .unspoken import Unspoken
from .uplink import Refused, Unreachable, Uplink
from .wire import BATCH_MAX, Assignment, Registered, Registration, Taking, Unread

log = logging.getLogger(__name__)

MESSAGES_PER_EXCHANGE_MAX = 20
CLOCK_OFFSET_MS_MAX = 2_000
SET_ASIDE_PAUSE_MS = 60_000
SAMPLE_SECONDS = 10
POLL_SECONDS = 5

Keep = Callable[[Sequence[Record]], bool]


class Courier:
    """Registers the host, fetches assignments, delivers reports and samples.

    keep: writes records to the spool and the state. lock: guards both; never held while a request
    is under way, so a slow server does not hold up the end of a lease. refused: file for what the
    server refuses for good. holds_back: tells if the end of a lease's work is to be told later.
    """

    def __init__(
        self,
        uplink: Uplink,
        state: AgentState,
        *,
        keep: Keep,
        lock: AbstractContextManager[object],
        clock: Clock,
        refused: Path,
        holds_back: Callable[[UUID], bool] = lambda _: False,
    ) -> None:
        self._uplink = uplink
        self._state = state
        self._keep = keep
        self._lock = lock
        self._clock = clock
        self._registered: Registration | None = None
        self._polled_ms: int | None = None
        self._batch_max = BATCH_MAX
        # One for each kind of message: that reports are taken says nothing of samples.
        self._patience = {
            kind: Backoff(first_ms=SET_ASIDE_PAUSE_MS, most_ms=10 * SET_ASIDE_PAUSE_MS)
            for kind in ("reports", "samples")
        }
        self._refused = refused
        self._holds_back = holds_back
        self._unspoken = Unspoken()
        self._turned_away: set[UUID] = set()
        self.set_aside = 0
        self.unread: set[UUID] = set()
        self.handing = Handing(uplink, lock)
        self.registration: Registration | None = None
        self.desired: dict[UUID, Assignment] | None = None
        self.taking: Taking = "all"
        self.host_id: UUID | None = None
        self.reached_ms: int | None = None
        self.sample_seconds = SAMPLE_SECONDS
        self.poll_seconds = POLL_SECONDS
        self.backoff = Backoff()
        self.trouble = ""

    def exchange(self) -> None:
        """Do all that is due with the server. Never raises; `trouble` says what is wrong."""
        if not self.backoff.is_due(self._clock.now_ms()):
            return
        trouble = ""
        steps = (self._register, self._poll, self._ask_secrets)
        # What is wrong with a GPU goes first: it may be why the work ended that is reported then.
        for step in (*steps, self._send_samples, self._send_reports):
            try:
                step()
            except (Unreachable, Refused) as error:
                trouble = trouble or str(error)
                if isinstance(error, Unreachable) or error.is_about_us:
                    break  # the other steps would fare alike
        if trouble:
            self.backoff.failed(self._clock.now_ms())
        else:
            self.backoff.succeeded()
        if trouble != self.trouble:
            log.warning("the server: %s", trouble or "answers again")
        self.trouble = trouble

    def _register(self) -> None:
        registration = self.registration
        if registration is None or registration == self._registered:
            return
        asked_ms = self._clock.now_ms()
        answer = self._registered_as(registration)
        offset_ms = (asked_ms + self._clock.now_ms()) // 2 - epoch_ms(answer.server_time)
        if abs(offset_ms) > CLOCK_OFFSET_MS_MAX:
            log.warning("this host's clock is %+d ms off the server's: set it by NTP", offset_ms)
        self._registered = registration
        self.host_id = answer.host_id
        self.sample_seconds = answer.sample_seconds
        self.poll_seconds = answer.poll_seconds

    def _registered_as(self, registration: Registration) -> Registered:
        """Say what this host has, to an older market without what that does not know."""
        while True:
            try:
                return self._uplink.register(registration)
            except Refused as refusal:
                plainer = self._unspoken.plainer(registration, refusal)
                if plainer is None:
                    raise
                registration = plainer

    def _poll(self) -> None:
        now_ms = self._clock.now_ms()
        if self._polled_ms is not None and now_ms - self._polled_ms < self.poll_seconds * 1000:
            return
        answer = self._uplink.assignments()
        self._polled_ms = self.reached_ms = now_ms
        with self._lock:
            before, self.desired = self.desired or {}, {e.lease_id: e for e in answer.assignments}
            self.unread = {each.lease_id for each in answer.unread}
            self.desired |= {each: before[each] for each in self.unread & before.keys()}
            self.taking = answer.taking
            for each in answer.unread:
                self._turn_away(each)

    def _turn_away(self, unread: Unread) -> None:
        """Report once that a lease cannot be started which asks for what this version has not."""
        known = self._state.leases.get(unread.lease_id)
        if known is None and unread.lease_id not in self._turned_away:
            log.error("lease %s: cannot be read: %s", unread.lease_id, unread.reason)
            if self._keep([unread_report(unread, self._clock.now_ms())]):
                self._turned_away.add(unread.lease_id)

    def lists(self, lease_id: UUID) -> bool:
        """Tell if the server wants a lease here, as far as is known."""
        return self.desired is None or lease_id in self.desired or lease_id in self.unread

    def _ask_secrets(self) -> None:
        with self._lock:
            desired = set(self.desired or ())
        self.handing.ask(desired)

    def _send_reports(self) -> None:
        for _ in range(MESSAGES_PER_EXCHANGE_MAX):
            with self._lock:
                bodies = self._state.report_batch(self._batch_max, self._holds_back)
            if not bodies:
                return
            ids = [str(body["report_id"]) for body in bodies]
            said = self._unspoken.said("reports", bodies)
            message = {"boot_id": str(self._state.boot_id), "reports": said}
            try:
                self._uplink.report(message)
            except Refused as refusal:
                if self._unspoken.learns(refusal):
                    continue
                if (alone := self._unspoken.alone(refusal, message)) is not None:
                    self._set_aside(refusal, alone)
                    ids = [str(alone["report_id"])]
                elif not self._narrow("reports", refusal, len(bodies), bodies):
                    continue
            else:
                self._widen("reports")
            with self._lock:
                self._keep([{"t": "reported", "ids": ids}])

    def _send_samples(self) -> None:
        for _ in range(MESSAGES_PER_EXCHANGE_MAX):
            with self._lock:
                found = self._state.sample_batch(self._batch_max)
            if found is None:
                return
            boot_id, message, last = found
            message["health"] = [
                each
                for each in message["health"]
                if (boot_id, each["seq"]) not in self._unspoken.aside
            ]
            for name in ("batch", "health"):
                message[name] = self._unspoken.said(name, message[name])
            count = len(message["batch"]) + len(message["health"])
            seqs = [each["seq"] for each in [*message["batch"], *message["health"]]]
            first = min(seqs, default=last)
            try:
                seq = self._uplink.send(message).acknowledged_seq if seqs else last
            except Refused as refusal:
                if self._unspoken.learns(refusal):
                    continue
                if (alone := self._unspoken.alone(refusal, message)) is not None:
                    self._set_aside(refusal, alone)
                    self._unspoken.aside.add((boot_id, alone["seq"]))
                    continue
                if not self._narrow("samples", refusal, count, message):
                    continue
                seq = last
            else:
                self._widen("samples")
            if seq < first:
                raise Unreachable(f"the server acknowledged {seq}, although {first} was sent")
            with self._lock:
                # More than was sent cannot have arrived.
                self._keep([{"t": "acked", "boot": str(boot_id), "seq": min(seq, last)}])
            self._unspoken.over(boot_id, min(seq, last))

    def _widen(self, kind: str) -> None:
        self._patience[kind].succeeded()
        self._batch_max = min(BATCH_MAX, self._batch_max * 2)

    def _narrow(self, kind: str, refusal: Refused, count: int, what: object) -> bool:
        """Look for the one message that is refused; return whether it is found and set aside.

        One bad line must not hold up all later ones: it goes to a file, and the server sees the
        missing number as a gap. When nothing is accepted in between, it is rather the server
        that is wrong, and the spool is not emptied into that file: the pauses grow.
        """
        if refusal.is_about_us:
            raise refusal
        if count > 1:
            self._batch_max = max(1, count // 2)
            return False
        now_ms = self._clock.now_ms()
        if not self._patience[kind].is_due(now_ms):
            raise refusal
        self._patience[kind].failed(now_ms)
        self._set_aside(refusal, what)
        return True

    def _set_aside(self, refusal: Refused, what: object) -> None:
        log.error("the server refuses this for good (%s), set aside: %s", refusal, what)
        self.set_aside += 1
        try:
            with open(self._refused, "a", opener=_private) as file:
                file.write(json.dumps({"refusal": str(refusal), "message": what}) + "\n")
        except OSError as error:
            log.error("%s: %s", self._refused, error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
