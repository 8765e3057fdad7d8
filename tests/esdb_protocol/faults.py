"""Faults on order: what a test asks the server to do wrong, and how it asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import grpc

CONTROL_SERVICE = "offpeak.testing.Control"


@dataclass(slots=True)
class Faults:
    """Faults still to come. Counters go down as the faults happen.

    drop_replies: appends whose connection is cut after the commit and before the reply.
    die_after_commit: appends after which the process ends at once, with no reply.
    refuse_reads: reads answered UNAVAILABLE, as during a change of leader.
    end_subscriptions: events after which a live subscription is ended as "Consumer too slow".
    delay_ms: how long every append waits before it is handled, until set back to 0.
    """

    drop_replies: int = 0
    die_after_commit: int = 0
    refuse_reads: int = 0
    end_subscriptions: int = 0
    delay_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def set(self, **faults: int) -> None:
        """Order faults by name."""
        known = {item.name for item in fields(self)} - {"_lock"}
        assert set(faults) <= known, f"unknown fault among {sorted(faults)}"
        with self._lock:
            for name, value in faults.items():
                setattr(self, name, value)

    def take(self, name: str) -> bool:
        """Say whether a fault is due now, and count it."""
        with self._lock:
            left: int = getattr(self, name)
            if left > 0:
                setattr(self, name, left - 1)
            return left > 0


def control_handler(
    actions: dict[str, Callable[..., object]],
) -> grpc.GenericRpcHandler:
    """Serve `actions` by name; arguments and results travel as JSON."""

    def do(request: dict[str, Any], context: grpc.ServicerContext) -> object:
        return {"done": actions[request["action"]](**request["arguments"])}

    method = grpc.unary_unary_rpc_method_handler(
        do, request_deserializer=json.loads, response_serializer=_to_json
    )
    return grpc.method_handlers_generic_handler(CONTROL_SERVICE, {"Do": method})


def ask(address: str, action: str, **arguments: object) -> None:
    """Have the server at `address` (host:port) do something from `control_handler`."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(
            f"/{CONTROL_SERVICE}/Do",
            request_serializer=_to_json,
            response_deserializer=json.loads,
        )
        call({"action": action, "arguments": arguments}, timeout=10)


def _to_json(value: object) -> bytes:
    return json.dumps(value).encode()
