"""What every API handler is made of: `Endpoint`, strict bodies, cursors, versions, problems.

Conventions of the API, all enforced here: JSON in snake_case; money as decimal strings beside a
currency; times RFC 3339 with an offset, answered in UTC with Z; durations in seconds; lists as
`{data, next}`; refusals as RFC 9457 problems; `?after=POSITION` to read one's own write;
`Idempotency-Key` to ask twice safely; `If-Match` against a lost update.
"""

from __future__ import annotations

from ledger.rest.cursors import Ordered, paginate
from ledger.rest.endpoint import ANY_SCOPE, Endpoint
from ledger.rest.fields import (
    AmountField,
    Body,
    CountField,
    DurationField,
    MomentField,
    TextField,
)
from ledger.rest.problems import Problem, problem_of
from ledger.rest.versions import VersionMoved, etag_of, need_version

__all__ = [
    "ANY_SCOPE",
    "AmountField",
    "Body",
    "CountField",
    "DurationField",
    "Endpoint",
    "MomentField",
    "Ordered",
    "Problem",
    "TextField",
    "VersionMoved",
    "etag_of",
    "need_version",
    "paginate",
    "problem_of",
]
