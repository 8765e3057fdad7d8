"""Hold a file of FOCUS 1.2 or 1.3 to the rules, row by row.

The official validator passes files that break them: a wrong value in one row where another row
is right, a product that is off on every ordinary row, a time without its zone. Here each rule is
asked of each row, and what a row says is read as text, not as a spreadsheet would.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.ledger.focus_rules import added_in_1_3

RULES = json.loads(Path(__file__).with_name("rules.json").read_text())
PRODUCT_TOLERANCE = Decimal("1e-9")

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z")
_CURRENCY = re.compile(r"[A-Z]{3}")
_WORDS = r"[A-Za-z][A-Za-z0-9]*( [A-Za-z][A-Za-z0-9]*)*"
_TIMES = "Years|Months|Days|Hours|Minutes|Seconds"
_UNIT = re.compile(
    rf"([0-9]+ )?{_WORDS}(-({_TIMES})|/(Year|Month|Day|Hour|Minute|Second)|/[0-9]+ ({_TIMES}))?"
)

Row = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that does not hold. line: of the file, 1 for its header."""

    rule: str
    keyword: str
    line: int


def judge(text: str, *, version: str = "1.2") -> list[Broken]:
    """Return every rule that a CSV file breaks, with the first line at which it does.

    version: 1.3 keeps the rules of 1.2, and those of `added_in_1_3`.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = [{name: value or None for name, value in row.items()} for row in reader]
    columns = list(reader.fieldnames or ())
    found = []
    for name, rule in RULES["rules"].items():
        line = _first_failure(name, rule, rows, columns)
        if line is not None:
            found.append(Broken(name, rule["keyword"], line))
    strangers = set(columns) - set(RULES["columns"])
    if version == "1.3":
        strangers -= set(added_in_1_3.COLUMNS)
        found += [Broken(name, "MUST", line) for name, line in added_in_1_3.broken(rows, columns)]
    if any(not name.startswith("x_") for name in strangers):
        found.append(Broken("ColumnHandling-A-010-M", "MUST", 1))
    return found


def must_rules_broken(text: str, *, version: str = "1.2") -> set[str]:
    """Return the names of the rules that a file must keep and does not."""
    return {
        broken.rule for broken in judge(text, version=version) if broken.keyword.startswith("MUST")
    }


def _first_failure(
    name: str, rule: dict[str, Any], rows: list[Row], columns: list[str]
) -> int | None:
    kind, *terms = rule["check"]
    if kind == "present":
        return None if terms[0] in columns else 1
    column, _, rest = name.partition("-C-")
    if rest and column not in columns:
        return None  # another rule says whether it must be there
    if kind == "distinct":
        return _first_not_distinct(rows, *terms)
    for line, row in enumerate(rows, start=2):
        if all(_holds(each, row) for each in rule["when"]) and not _holds(rule["check"], row):
            return line
    return None


def _first_not_distinct(rows: list[Row], group: str, counted: str, expected: int) -> int | None:
    seen: dict[str, set[str]] = defaultdict(set)
    for line, row in enumerate(rows, start=2):
        key, value = row.get(group), row.get(counted)
        if key is not None and value is not None:
            seen[key].add(value)
            if len(seen[key]) > expected:
                return line
    return None


def _holds(check: list[Any], row: Row) -> bool:
    kind, *terms = check
    match kind:
        case "and":
            return all(_holds(each, row) for each in terms)
        case "or":
            return any(_holds(each, row) for each in terms)
        case "if":
            return not _holds(terms[0], row) or _holds(terms[1], row)
        case "is":
            return _is(row.get(terms[0]), terms[1])
        case "is-not":
            return not _is(row.get(terms[0]), terms[1])
        case "same":
            return row.get(terms[0]) == row.get(terms[1])
        case "differ":
            return row.get(terms[0]) != row.get(terms[1])
        case "product":
            return _is_product(*(row.get(each) for each in terms))
        case "present":
            return terms[0] in row
        case _:
            value = row.get(terms[0])
            return value is None or _well_formed(kind, value, terms[1:])


def _is(value: str | None, wanted: Any) -> bool:
    if value is None or wanted is None:
        return value is None and wanted is None
    text = str(wanted)
    if value == text:
        return True
    both_numbers = _NUMBER.fullmatch(value) and _NUMBER.fullmatch(text)
    return bool(both_numbers) and Decimal(value) == Decimal(text)


def _is_product(first: str | None, second: str | None, result: str | None) -> bool:
    if first is None or second is None or result is None:
        return True
    if not all(_NUMBER.fullmatch(each) for each in (first, second, result)):
        return False
    wanted = Decimal(result)
    off = abs(Decimal(first) * Decimal(second) - wanted)
    return off <= PRODUCT_TOLERANCE * max(abs(wanted), Decimal(1))


def _well_formed(kind: str, value: str, terms: Iterable[str]) -> bool:
    match kind:
        case "decimal":
            return bool(_NUMBER.fullmatch(value))
        case "at-least":
            (least,) = terms
            return bool(_NUMBER.fullmatch(value)) and Decimal(value) >= Decimal(least)
        case "moment":
            return bool(_MOMENT.fullmatch(value))
        case "currency":
            return bool(_CURRENCY.fullmatch(value))
        case "unit":
            return bool(_UNIT.fullmatch(value))
        case "text":
            return value.strip() != ""
        case "key-value":
            return _is_flat_object(value)
        case _:
            raise NotImplementedError(kind)


def _is_flat_object(value: str) -> bool:
    try:
        pairs = json.loads(value, object_pairs_hook=list)
    except ValueError:
        return False
    if not value.lstrip().startswith("{") or not isinstance(pairs, list):
        return False
    names = [name for name, _ in pairs]
    return len(set(names)) == len(names) and not any(isinstance(each, list) for _, each in pairs)
