"""`Endpoint`, the class of every API handler.

In this order: the body is small enough; who asks is proved; the scope is carried and the roles
allow it; the caller's bucket is not empty; what `?after=` names has been read. Then the handler
runs, and whatever it raises becomes a problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ledger.access import Actor
from ledger.domain.refusal import Refusal
from ledger.eventstore import default_store
from ledger.eventstore.port import EventStore, Meta
from ledger.following import wait_until_read
from ledger.rest import idempotency, throttling
from ledger.rest.cursors import Ordered, paginate, paginate_entries
from ledger.rest.fields import Body
from ledger.rest.parameters import check_parameters, parameters_of
from ledger.rest.parsing import StrictJson
from ledger.rest.problems import NotReadYet, answer_problem
from ledger.rest.proving import SAFE_METHODS, BearerToken, NotSignedIn, PageSession
from ledger.rest.reading import AFTER_HEADER, CATCH_UP_SECONDS, catch_up, position_of
from ledger.rest.rendering import PlainJson
from ledger.rest.versions import Guarded, guard_of

ANY_SCOPE = ""
"""Whoever has proved who they are; the handler looks after the rest."""

METHODS = ("get", "post", "put", "patch", "delete")
READ_WAIT_SECONDS = 5.0
NOT_FOUND, CONFLICT = 404, 409

_checkers = threading.local()


class Endpoint(APIView):
    """A handler of the API.

    scopes: for each method it handles, the scope that a token must carry; whose roles may use
        a scope, `ledger.domain.tokens.ROLES_OF_SCOPE` says.
    reads: names of the projections whose rows its handlers read or show; what `?after=` waits
        for, and what must have been read before anything is called missing.
    secret_fields: fields of an answer that a repeat with the same key does not get again.
    one_append: what it writes goes out in one append, which needs no transaction around it. So
        the log is not held up while this process thinks.
    """

    scopes: ClassVar[Mapping[str, str]]
    reads: ClassVar[tuple[str, ...]] = ()
    secret_fields: ClassVar[frozenset[str]] = frozenset()
    one_append: ClassVar[bool] = False
    many: ClassVar[frozenset[str]] = frozenset()
    """Parameters of the address that may be given more than once."""

    http_method_names = [*METHODS, "head"]
    authentication_classes = (BearerToken, PageSession)
    permission_classes = ()
    throttle_classes = ()
    parser_classes = (StrictJson,)
    renderer_classes = (PlainJson,)

    request_id: UUID
    allowance: throttling.Allowance | None = None
    guard: Guarded | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        handled = {name.upper() for name in METHODS if hasattr(cls, name)}
        scopes = getattr(cls, "scopes", {})
        assert handled == set(scopes), f"{cls.__name__}.scopes must name {sorted(handled)}"

    @property
    def actor(self) -> Actor:
        """Return who asks; proved before the handler runs."""
        return cast(Actor, self.request.auth)

    def meta(self) -> Meta:
        """Return what every event of this request carries.

        `command_id` derives from the Idempotency-Key, so that a repeat records nothing twice.
        """
        return self.actor.meta(request_id=self.request_id, command_id=self.command_id)

    @cached_property
    def command_id(self) -> UUID:
        """Return the id from which ids made for this request derive."""
        asked = self._asked()
        return asked.command_id if asked else uuid4()

    def store(self, stream: str | None = None) -> EventStore:
        """Return the store to write to; with `stream`, one that heeds the request's If-Match.

        Raises: VersionMoved, VersionUnreadable.
        """
        if stream is None:
            return default_store()
        self.guard = guard_of(default_store(), stream, self.request.headers.get("If-Match"))
        return self.guard or default_store()

    def body(self, shape: type[Body]) -> dict[str, Any]:
        """Return the request's body, checked.

        Raises: BodyUnreadable, serializers.ValidationError.
        """
        return cast("dict[str, Any]", checker_of(shape).run_validation(self.request.data))

    def page(
        self,
        rows: QuerySet[Any],
        shape: type[serializers.BaseSerializer[Any]] | Callable[[Any], Any],
        order: Ordered,
    ) -> Response:
        """Answer one page of `rows`, which `visible(self.actor, …)` made."""
        return Response(paginate(rows, shape, order, query=self.request.query_params))

    def listed(
        self,
        entries: Iterable[Any],
        key: Sequence[str],
        **more: object,
    ) -> Response:
        """Answer a list that is worked out and not kept in rows: whole, or a page if asked for.

        key: fields of an entry that together name it, for the cursor. more: beside the list.
        """
        return Response({**paginate_entries(list(entries), key, self.request.query_params), **more})

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Check, handle, and turn whatever is raised into a problem."""
        self.args, self.kwargs = args, kwargs
        self.headers: dict[str, str] = {}
        self.request_id = request_id_of(request.headers.get("X-Request-ID"))
        asked = self.request = self.initialize_request(request, *args, **kwargs)
        try:
            self.initial(asked, *args, **kwargs)
            handler = getattr(self, str(asked.method).lower())
            response = self._found(lambda: cast(Response, handler(asked, *args, **kwargs)))
        except Exception as failure:  # answered as a problem, and logged where it is a fault
            response = self.handle_exception(failure)
        self.response = self.finalize_response(asked, response, *args, **kwargs)
        self.response["X-Request-ID"] = str(self.request_id)
        if self.allowance is not None:
            for name, value in self.allowance.headers().items():
                self.response[name] = value
        return self.response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check everything that does not depend on what the handler does."""
        method = "GET" if request.method == "HEAD" else str(request.method)
        if method not in self.scopes:
            self.http_method_not_allowed(request, *args, **kwargs)
        request._request.body  # noqa: B018  # read here, so that Django's limit on its size holds
        known = parameters_of(type(self), method)
        said = request.META.get("QUERY_STRING", "")
        check_parameters(request.query_params, said, known, many=self.many)
        super().initial(request, *args, **kwargs)
        if not isinstance(request.auth, Actor):
            raise NotSignedIn()
        self.allowance = throttling.take(
            caller_of(self.actor),
            per_minute=settings.ENV.throttle_per_minute,
            now=timezone.now(),
        )
        if self.scopes[method] != ANY_SCOPE:
            self.actor.need_scope(self.scopes[method])
        self._wait_until_read(must=method == "GET")

    def handle_exception(self, exc: Exception) -> Response:
        """Answer a problem; a failure of ours is logged and shown without its inside."""
        response = answer_problem(exc, instance=self.request.path, request_id=str(self.request_id))
        response.exception = True
        if response.status_code == 405:
            response["Allow"] = ", ".join(sorted(self.scopes))
        return response

    def _wait_until_read(self, *, must: bool) -> None:
        """Let the caller see what it wrote. must: else a write goes on, which reads its stream."""
        header = self.request.headers.get(AFTER_HEADER)
        after = self.request.query_params.get("after", header)
        if after is None:
            return
        position = position_of(after, default_store())
        read = wait_until_read(self.reads, position, timeout_seconds=READ_WAIT_SECONDS)
        if must and not read:
            raise NotReadYet(after=position)

    def _found(self, handle: Callable[[], Response]) -> Response:
        """Answer; call nothing missing that has only not been read yet."""
        try:
            return self._answer(handle)
        except Refusal as missing:
            if missing.status != NOT_FOUND:
                raise
            store = default_store()
            has_read = catch_up(self.reads, store, timeout_seconds=CATCH_UP_SECONDS)
            try:
                return self._answer(handle)
            except Refusal as still_missing:
                if has_read or still_missing.status != NOT_FOUND:
                    raise
                # It may be what somebody was told a moment ago that it is there.
                raise NotReadYet(after=store.head()) from still_missing

    def _answer(self, handle: Callable[[], Response]) -> Response:
        return self._decided(lambda: self._of_this_version(handle))

    def _of_this_version(self, handle: Callable[[], Response]) -> Response:
        """Handle; that it has changed since it was read comes before any rule that says no.

        Raises: VersionMoved, where nothing was written and If-Match names another version.
        """
        try:
            response = handle()
        except Refusal as refusal:
            if refusal.status == CONFLICT and self.guard is not None:
                self.guard.need_unmoved()
            raise
        if self.guard is not None:
            self.guard.need_unmoved()
        return response

    def _decided(self, handle: Callable[[], Response]) -> Response:
        if self.request.method in SAFE_METHODS:
            return handle()
        shares = default_store().shares_django_transaction
        asked = self._asked()
        if asked is None:
            if self.one_append or not shares:
                return handle()
            with transaction.atomic():
                return handle()
        in_one = shares and not self.one_append
        return idempotency.once(asked, handle, in_transaction=in_one, now=timezone.now())

    def _asked(self) -> idempotency.Asked | None:
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return None
        match = self.request.resolver_match
        route = match.route if match else self.request.path
        return idempotency.asked(
            tenant_id=self.actor.tenant_id,
            route=f"{self.request.method} {route}",
            key=key,
            path=self.request.get_full_path(),
            body=self.request._request.body,
            secret_fields=self.secret_fields,
        )


def checker_of(shape: type[Body]) -> Body:
    """Return this thread's `shape`: its fields, copied once, not for every request."""
    known: dict[type[Body], Body] | None = getattr(_checkers, "known", None)
    if known is None:
        known = _checkers.known = {}
    if shape not in known:
        known[shape] = shape()
    return known[shape]


def request_id_of(given: str | None) -> UUID:
    """Return the request id that the client gave, or a new one."""
    try:
        return UUID(given or "")
    except ValueError:
        return uuid4()


def caller_of(actor: Actor) -> str:
    """Return whose bucket a request is taken from."""
    return f"token:{actor.token_id}" if actor.token_id else f"user:{actor.user_id}"
