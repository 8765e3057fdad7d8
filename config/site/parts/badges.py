"""What each state of the market looks like: its word, its tone and its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "busy", "warn", "bad", "burst"]
Shape = Literal["dot", "ring", "half", "square", "triangle", "cross", "dash", "cloud"]


@dataclass(frozen=True, slots=True)
class Look:
    """How a badge shows a state; tone and shape always change together."""

    text: str
    tone: Tone = ""
    shape: Shape = "ring"


_LOOKS: dict[str, Look] = {
    "accepted": Look("Accepted", "good", "dot"),
    "active": Look("Active", "good", "dot"),
    "closed": Look("Closed", "", "dash"),
    "ending": Look("Ending", "warn", "half"),
    "failed": Look("Failed", "bad", "cross"),
    "migrating": Look("Migrating", "busy", "half"),
    "pausing": Look("Pausing", "warn", "half"),
    "reclaiming": Look("Reclaiming", "warn", "triangle"),
    "draining": Look("Draining", "warn", "half"),
    "scheduled": Look("Scheduled", "busy", "ring"),
    "starting": Look("Starting", "busy", "half"),
    "draft": Look("Draft"),
    "expired": Look("Expired", "", "dash"),
    "listed": Look("Listed", "busy", "square"),
    "paused": Look("Paused", "warn", "dash"),
    "withdrawn": Look("Withdrawn", "", "dash"),
    "cancelled": Look("Cancelled", "", "dash"),
    "filled": Look("Filled", "good", "dot"),
    "open": Look("Open", "busy", "ring"),
    "partially-filled": Look("Partly filled", "busy", "half"),
    "revoked": Look("Revoked", "", "dash"),
    "refused": Look("Refused", "bad", "cross"),
    "approved": Look("Approved", "busy", "half"),
    "declined": Look("Declined", "bad", "cross"),
    "taken-up": Look("Taken up", "good", "dot"),
    "captured": Look("Captured", "good", "dot"),
    "placed": Look("Held", "busy", "half"),
    "released": Look("Released", "", "dash"),
    "asked": Look("Asked for", "busy", "ring"),
    "succeeded": Look("Came in", "good", "dot"),
    "won": Look("Won", "good", "dot"),
    "soft-closed": Look("Soft-closed", "warn", "half"),
    "issued": Look("Issued", "good", "dot"),
    "requested": Look("Requested", "warn", "ring"),
    "sent": Look("At the bank", "busy", "half"),
    "overdue": Look("Overdue", "bad", "triangle"),
    "credited": Look("Credited", "", "dash"),
    "written-off": Look("Written off", "", "cross"),
    "paid": Look("Paid", "good", "dot"),
    "returned": Look("Returned", "bad", "cross"),
    "details-missing": Look("Details missing", "warn", "ring"),
    "restricted": Look("Restricted", "bad", "cross"),
    "known": Look("Known", "", "dash"),
    "pending": Look("Not booked", "warn", "ring"),
    "amount": Look("Other amount", "bad", "cross"),
    "state": Look("Not taken", "bad", "cross"),
    "not-ours": Look("Not ours", "", "dash"),
    "arrived": Look("Arrived", "good", "dot"),
    "ready": Look("Ready", "good", "dot"),
    "on-its-way": Look("On its way", "warn", "ring"),
    "upheld": Look("Given back", "good", "dot"),
    "in-part": Look("Given back in part", "good", "half"),
    "dismissed": Look("Dismissed", "", "dash"),
    "intended": Look("Intended", "burst", "ring"),
    "lost": Look("Lost", "bad", "cross"),
    "provisioning": Look("Provisioning", "burst", "half"),
    "running": Look("Running", "burst", "cloud"),
    "terminated": Look("Terminated", "", "dash"),
    "terminating": Look("Terminating", "warn", "half"),
    "healthy": Look("Healthy", "good", "dot"),
    "late": Look("Late", "warn", "triangle"),
    "returning": Look("Returning", "warn", "half"),
    "silent": Look("Silent", "bad", "cross"),
    "quarantined": Look("Quarantined", "bad", "square"),
    "stopped": Look("Stopped", "bad", "cross"),
}


def look_of(state: str) -> Look:
    """Return the look of `state`; one that is not known shows its own name, plainly."""
    name = state.replace("_", "-")
    return _LOOKS.get(name) or Look(name.replace("-", " ").capitalize())
