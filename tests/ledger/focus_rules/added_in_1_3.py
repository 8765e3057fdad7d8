"""What FOCUS 1.3 asks beside 1.2, row by row: who provides and hosts, and costs that are split.

Names of rules are those of the model that the FOCUS project publishes for 1.3, whose rules about
split costs no program checks: their requirements are prose. What they say is asked here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any

COLUMNS = (
    "AllocatedMethodDetails",
    "AllocatedMethodId",
    "AllocatedResourceId",
    "AllocatedResourceName",
    "AllocatedTags",
    "HostProviderName",
    "ServiceProviderName",
)
METRICS = ("AllocatedRatio", "UsageQuantity")

Row = dict[str, str | None]
Rule = Callable[[Row], bool]


def _is_split(row: Row) -> bool:
    return row.get("AllocatedMethodId") is not None


def _null_unless_split(column: str) -> Rule:
    return lambda row: _is_split(row) or row.get(column) is None


def _there_if_split(column: str) -> Rule:
    return lambda row: not _is_split(row) or row.get(column) is not None


def _object(row: Row) -> dict[str, Any] | None:
    """Return the details, {} where they are null; None: no JSON object."""
    text = row.get("AllocatedMethodDetails")
    try:
        found = json.loads(text or "{}", parse_float=Decimal)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _elements(row: Row) -> list[Any]:
    found = _object(row) or {}
    elements = found.get("Elements", [])
    return elements if isinstance(elements, list) else [None]


def _has_elements(row: Row) -> bool:
    if row.get("AllocatedMethodDetails") is None:
        return True
    return bool(_elements(row)) and all(
        isinstance(each, dict) and "AllocatedRatio" in each for each in _elements(row)
    )


def _ratios_are_parts(row: Row) -> bool:
    ratios = [each.get("AllocatedRatio") for each in _elements(row) if isinstance(each, dict)]
    return all(isinstance(each, int | Decimal) and 0 < each <= 1 for each in ratios)


def _units_are_named(row: Row) -> bool:
    elements = [each for each in _elements(row) if isinstance(each, dict)]
    return all("UsageUnit" in each or "UsageQuantity" not in each for each in elements)


def _keys_are_known(row: Row) -> bool:
    keys = chain(
        (_object(row) or {}).keys() - {"Elements"},
        *(each.keys() - {*METRICS, "UsageUnit"} for each in _elements(row) if each),
    )
    return all(key.startswith("x_") for key in keys)


def _tags_are_those_of_the_origin(row: Row) -> bool:
    if row.get("AllocatedTags") is None:
        return True
    allocated, own = (json.loads(row.get(name) or "{}") for name in ("AllocatedTags", "Tags"))
    return bool(allocated.items() >= own.items())


RULES: dict[str, Rule] = {
    "ServiceProviderName-C-003-M": lambda row: row.get("ServiceProviderName") is not None,
    "HostProviderName-C-003-M": lambda row: row.get("HostProviderName") is not None,
    "AllocatedMethodDetails-C-003-M": lambda row: _object(row) is not None,
    "AllocatedMethodDetails-C-005-C": _null_unless_split("AllocatedMethodDetails"),
    "AllocatedMethodDetails-C-006-C": _there_if_split("AllocatedMethodDetails"),
    "AllocatedMethodDetailsObject-O-001-M": _has_elements,
    "AllocatedMethodDetailsObject-O-002-M": _ratios_are_parts,
    "AllocatedMethodDetailsObject-O-005-C": _units_are_named,
    "AllocatedMethodDetailsObject-O-007-C": _keys_are_known,
    "AllocatedResourceId-C-004-C": _null_unless_split("AllocatedResourceId"),
    "AllocatedResourceId-C-006-C": _there_if_split("AllocatedResourceId"),
    "AllocatedResourceName-C-004-C": _null_unless_split("AllocatedResourceName"),
    "AllocatedResourceName-C-006-C": _there_if_split("AllocatedResourceName"),
    "AllocatedTags-C-004-C": _null_unless_split("AllocatedTags"),
    "SplitCostAllocationHandling-A-004-C": _tags_are_those_of_the_origin,
}


def broken(rows: list[Row], columns: list[str]) -> list[tuple[str, int]]:
    """Return every rule that does not hold, with the first line at which it does not."""
    found = [(f"CostAndUsage-D-{name}", 1) for name in COLUMNS if name not in columns]
    for name, rule in RULES.items():
        line = next((line for line, row in enumerate(rows, 2) if not rule(row)), None)
        if line is not None:
            found.append((name, line))
    return found
