"""Make `rules.json` from the requirements model that the FOCUS project publishes.

    python -m tests.ledger.focus_rules.extract model-1.2.0.1.json > rules.json

The model comes with the PyPI package focus-validator (2.2.1, MIT licence) under
`focus_validator/rules/`. Taken from it are facts only: which check on which column, under which
condition, for the criteria that an Offpeak export claims. A rule that only holds inside another
carries the other's condition.
"""

from __future__ import annotations

import json
import sys
from typing import Any

CRITERIA_NOT_CLAIMED = {
    "COMMITMENT_DISCOUNT_SUPPORTED",
    "CAPACITY_RESERVATION_SUPPORTED",
    "VIRTUAL_CURRENCY_SUPPORTED",
}
NEED_MORE_THAN_A_FILE = {
    # Whether a charge is on an invoice, or bought under a commitment, the file does not say.
    "InvoiceId-C-004-C",
    "InvoiceId-C-005-C",
    "CommitmentDiscountStatus-C-004-C",
    "CapacityReservationStatus-C-003-C",
    "CapacityReservationStatus-C-004-C",
}
SIMPLE = {
    "TypeDecimal": "decimal",
    "FormatNumeric": "decimal",
    "CheckDecimalValue": "decimal",
    "TypeDateTime": "moment",
    "FormatDateTime": "moment",
    "CheckNationalCurrency": "currency",
    "FormatCurrency": "currency",
    "FormatKeyValue": "key-value",
    "FormatUnit": "unit",
    "TypeString": "text",
    "FormatString": "text",
    "ColumnPresent": "present",
}

Model = dict[str, Any]
Check = list[Any]
TRUE: Check = ["and"]


def extract(published: Model) -> Model:
    """Return every rule that a file can be held to, with its conditions."""
    rules = {
        name: rule
        for name, rule in published["ModelRules"].items()
        if not CRITERIA_NOT_CLAIMED & set(rule.get("ApplicabilityCriteria") or [])
    }
    parents, optional = _parents(rules)
    kept = {}
    for name, rule in rules.items():
        keyword = rule["ValidationCriteria"]["Keyword"]
        requirement = rule["ValidationCriteria"].get("Requirement") or {}
        grouping = requirement.get("CheckFunction") == "AND" and all(
            item["CheckFunction"] == "CheckModelRule" for item in requirement["Items"]
        )
        if grouping or keyword == "MAY" or name in optional or not _usable(name, rule):
            continue
        column, _, rest = name.partition("-C-")
        if rest and not any(each.startswith(f"{column}-C-000-") for each in rules):
            continue
        when = [_condition(rules[each], rules) for each in _line(name, parents)]
        kept[name] = {
            "keyword": keyword,
            "when": [check for check in when if check != TRUE],
            "check": _check(requirement, rules),
        }
    columns = {
        rule["Reference"]
        for rule in published["ModelRules"].values()
        if rule["EntityType"] == "Column"
    }
    return {"columns": sorted(columns), "rules": kept}


def _usable(name: str, rule: Model) -> bool:
    return (
        rule["Type"] == "Static"
        and name not in NEED_MORE_THAN_A_FILE
        and bool(rule["ValidationCriteria"].get("Requirement"))
    )


def _parents(rules: Model) -> tuple[dict[str, list[str]], set[str]]:
    """Return the rules that contain each rule, and those that are one of several choices."""
    parents: dict[str, list[str]] = {}
    optional = set()
    for name, rule in rules.items():
        requirement = rule["ValidationCriteria"].get("Requirement") or {}
        for item in requirement.get("Items", []):
            if item["CheckFunction"] == "CheckModelRule":
                parents.setdefault(item["ModelRuleId"], []).append(name)
                if requirement["CheckFunction"] == "OR":
                    optional.add(item["ModelRuleId"])
    return parents, optional


def _line(name: str, parents: dict[str, list[str]]) -> list[str]:
    found, todo = [], [name]
    while todo:
        each = todo.pop()
        if each not in found:
            found.append(each)
            todo.extend(parents.get(each, []))
    return found


def _condition(rule: Model, rules: Model) -> Check:
    condition = rule["ValidationCriteria"].get("Condition") or {}
    return _check(condition, rules) if "CheckFunction" in condition else TRUE


def _check(node: Model, rules: Model) -> Check:
    column = node.get("ColumnName") or node.get("CheckCondition")
    match node["CheckFunction"]:
        case "AND" | "OR" as both:
            return [both.lower(), *(_check(item, rules) for item in node["Items"])]
        case "CheckModelRule":
            other = rules.get(node["ModelRuleId"])
            if other is None or not _usable(node["ModelRuleId"], other):
                return TRUE
            then = _check(other["ValidationCriteria"]["Requirement"], rules)
            return ["if", _condition(other, rules), then]
        case "CheckValue":
            return ["is", column, node["Value"]]
        case "CheckNotValue":
            return ["is-not", column, node["Value"]]
        case "CheckGreaterOrEqualThanValue":
            return ["at-least", column, str(node["Value"])]
        case "CheckSameValue":
            return ["same", node["ColumnAName"], node["ColumnBName"]]
        case "CheckNotSameValue":
            return ["differ", node["ColumnAName"], node["ColumnBName"]]
        case "CheckDistinctCount":
            names = (node["ColumnAName"], node["ColumnBName"])
            return ["distinct", *names, node["ExpectedCount"]]
        case "ColumnByColumnEqualsColumnValue":
            names = (node["ColumnAName"], node["ColumnBName"])
            return ["product", *names, node["ResultColumnName"]]
        case simple:
            return [SIMPLE[simple], column]


if __name__ == "__main__":
    with open(sys.argv[1]) as published:
        rules = extract(json.load(published))
    lines = (f"  {json.dumps(name)}: {json.dumps(rule)}" for name, rule in rules["rules"].items())
    print('{\n "columns": ' + json.dumps(rules["columns"]) + ',\n "rules": {')
    print(",\n".join(lines) + "\n }\n}")
