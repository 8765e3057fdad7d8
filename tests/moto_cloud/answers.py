"""The few EC2 answers that moto does not give, and changes to those that it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from bursting.clouds.port import Interruption

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
MOTO_NAMESPACE = NAMESPACE.removesuffix("/")
CODES = {"pending": "0", "running": "16", "shutting-down": "32", "terminated": "48"}
SPOT_NOTICE = timedelta(minutes=2)

ElementTree.register_namespace("", NAMESPACE)


def error(code: str, message: str) -> bytes:
    """Return EC2's error document."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        "</Error></Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
    ).encode()


def spot_requests(notices: Sequence[Interruption]) -> bytes:
    """Return the answer of DescribeSpotInstanceRequests: one marked request for each notice."""
    items = "".join(
        "<item>"
        f"<spotInstanceRequestId>sir-{number:08d}</spotInstanceRequestId>"
        f"<instanceId>{escape(notice.instance_id)}</instanceId>"
        f"<state>active</state><status><code>{escape(notice.reason)}</code>"
        f"<updateTime>{(notice.at - SPOT_NOTICE).isoformat()}</updateTime></status>"
        "</item>"
        for number, notice in enumerate(notices)
    )
    return (
        f'<DescribeSpotInstanceRequestsResponse xmlns="{NAMESPACE}">'
        f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>"
        "</DescribeSpotInstanceRequestsResponse>"
    ).encode()


def instance_ids(document: bytes) -> list[str]:
    """Return the ids of all instances that an answer names, in its order."""
    root = ElementTree.fromstring(_as_aws(document))
    return [found.text or "" for found in root.iter(f"{{{NAMESPACE}}}instanceId")]


def retold(document: bytes, state_of: Callable[[str, str], str | None]) -> bytes:
    """Return an answer with each instance's state as `state_of(id, told)` has it; None hides it."""
    root = ElementTree.fromstring(_as_aws(document))
    for instances in root.iter(f"{{{NAMESPACE}}}instancesSet"):
        for item in list(instances):
            name = item.find(f"{{{NAMESPACE}}}instanceState/{{{NAMESPACE}}}name")
            code = item.find(f"{{{NAMESPACE}}}instanceState/{{{NAMESPACE}}}code")
            instance_id = item.findtext(f"{{{NAMESPACE}}}instanceId")
            assert name is not None and code is not None and instance_id is not None
            state = state_of(instance_id, name.text or "")
            if state is None:
                instances.remove(item)
            else:
                name.text, code.text = state, CODES[state]
    document_told: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document_told


def _as_aws(document: bytes) -> bytes:
    """Give moto's answer the namespace of the real one, which ends in a slash."""
    return document.replace(f'"{MOTO_NAMESPACE}"'.encode(), f'"{NAMESPACE}"'.encode())
