"""Stripe's own OpenAPI document: what a request may hold, and what an answer must look like."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft4Validator  # type: ignore[import-untyped]  # it has no types

Json = Any
FILE = Path(__file__).parent / "stripe_spec.json.gz"
ERRORS_MAX = 3


class Wrong(Exception):
    """An answer that is an error, as Stripe words it."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "invalid_request_error", **more: str
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"type": kind, "message": message, **more}}


@dataclass(frozen=True)
class Operation:
    """One operation. path: as the document writes it."""

    method: str
    path: str
    pattern: re.Pattern[str]
    says: Json

    def asked(self) -> Json:
        """Return the schema of what is asked."""
        if self.method == "POST":
            content = (self.says.get("requestBody") or {}).get("content", {})
            empty = {"type": "object", "additionalProperties": False}
            return content.get("application/x-www-form-urlencoded", {}).get("schema", empty)
        query = [each for each in self.says.get("parameters", []) if each["in"] == "query"]
        return {
            "type": "object",
            "properties": {each["name"]: each["schema"] for each in query},
            "required": [each["name"] for each in query if each.get("required")],
            "additionalProperties": False,
        }


@cache
def document() -> Json:
    """Return the document."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


@cache
def operations() -> tuple[Operation, ...]:
    """Return every operation, those without parameters in their path first."""
    found = []
    for path, methods in document()["paths"].items():
        pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
        for method, says in methods.items():
            found.append(Operation(method.upper(), path, pattern, says))
    return tuple(sorted(found, key=lambda each: each.path.count("{")))


def operation(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """Return what is asked for, with the ids in its address."""
    for each in operations():
        found = each.pattern.fullmatch(path)
        if found is not None and each.method == method:
            return each, found.groupdict()
    raise Wrong(f"Unrecognized request URL ({method}: {path}).", status=404)


def nested(pairs: Iterable[tuple[str, str]]) -> Json:
    """Read `a[b][0]=c` as Stripe does."""
    out: Json = {}
    for name, value in pairs:
        keys = [name.split("[")[0], *re.findall(r"\[([^\]]*)\]", name)]
        at = out
        for key in keys[:-1]:
            at = at.setdefault(key, {})
        at[keys[-1]] = value
    return out


def resolved(schema: Json) -> Json:
    """Follow references."""
    while "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def read(value: Json, schema: Json, name: str = "") -> Json:
    """Return what was asked, typed as the document says. Raises: Wrong."""
    schema = resolved(schema)
    if "anyOf" in schema:
        failures = []
        for each in schema["anyOf"]:
            try:
                return read(value, each, name)
            except Wrong as wrong:
                failures.append(wrong)
        raise max(failures, key=lambda each: len(each.body["error"].get("param", "")))
    match schema.get("type"):
        case "object":
            return _object(value, schema, name)
        case "array":
            if not isinstance(value, dict):
                raise Wrong(f"Invalid array: {name}", param=name)
            some = [value[key] for key in sorted(value, key=lambda k: int(k) if k.isdigit() else 0)]
            return [read(each, schema["items"], f"{name}[{n}]") for n, each in enumerate(some)]
    if isinstance(value, dict):
        raise Wrong(f"Invalid {schema.get('type')}: {name}", param=name)
    return _plain(value, schema, name)


def _object(value: Json, schema: Json, name: str) -> Json:
    if not isinstance(value, dict):
        raise Wrong(f"Invalid object: {name}", param=name)
    known, more, out = schema.get("properties", {}), schema.get("additionalProperties"), {}
    for key, each in value.items():
        inner = f"{name}[{key}]" if name else key
        if key in known:
            out[key] = read(each, known[key], inner)
        elif more is None or more is False:
            raise Wrong(
                f"Received unknown parameter: {inner}", param=inner, code="parameter_unknown"
            )
        else:
            out[key] = read(each, more, inner) if isinstance(more, dict) and more else each
    for key in schema.get("required", []):
        if key not in value:
            inner = f"{name}[{key}]" if name else key
            raise Wrong(f"Missing required param: {inner}.", param=inner, code="parameter_missing")
    return out


def _plain(value: str, schema: Json, name: str) -> Json:
    kind = schema.get("type")
    read_as: Json = value
    if kind == "integer":
        if not re.fullmatch(r"-?\d+", value):
            raise Wrong(f"Invalid integer: {value}", param=name, code="parameter_invalid_integer")
        read_as = int(value)
    elif kind == "number":
        read_as = float(value)
    elif kind == "boolean":
        if value not in ("true", "false"):
            raise Wrong(f"Invalid boolean: {value}", param=name)
        read_as = value == "true"
    elif len(value) > schema.get("maxLength", len(value)):
        raise Wrong(f"Invalid string: {name} is too long", param=name)
    if schema.get("enum") and read_as not in schema["enum"]:
        raise Wrong(f"Invalid {name}: must be one of {schema['enum'][:6]}", param=name)
    return read_as


def _as_json_schema(schema: Json) -> Json:
    """Return a schema of OpenAPI 3.0 as one of JSON Schema: `nullable` is there in words."""
    if isinstance(schema, list):
        return [_as_json_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value for key, value in schema.items() if key != "nullable"}
    for key in ("items", "anyOf", "additionalProperties"):
        if key in out:
            out[key] = _as_json_schema(out[key])
    if "properties" in out:
        out["properties"] = {k: _as_json_schema(v) for k, v in out["properties"].items()}
    return {"anyOf": [{"type": "null"}, out]} if schema.get("nullable") else out


@cache
def _root() -> Json:
    schemas = document()["components"]["schemas"]
    return {"components": {"schemas": {k: _as_json_schema(v) for k, v in schemas.items()}}}


@cache
def _validator(method: str, path: str) -> Draft4Validator:
    says = document()["paths"][path][method.lower()]
    answer = says["responses"]["200"]["content"]["application/json"]["schema"]
    return Draft4Validator({**_root(), **_as_json_schema(answer)})


def faults(asked: Operation, answer: Json) -> list[str]:
    """Return what is wrong with an answer by the document."""
    found = _validator(asked.method, asked.path).iter_errors(answer)
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message[:120]}" for each in found][
        :ERRORS_MAX
    ]


@cache
def _schema_validator(name: str) -> Draft4Validator:
    return Draft4Validator({**_root(), "$ref": f"#/components/schemas/{name}"})


def faults_of_object(name: str, value: Json) -> list[str]:
    """Return what is wrong with an object that a notice carries."""
    return [
        f"{'/'.join(map(str, each.absolute_path))}: {each.message[:120]}"
        for each in _schema_validator(name).iter_errors(value)
    ][:ERRORS_MAX]


def blank(schema: Json, name: str = "", depth: int = 0) -> Json:
    """Return the least that a schema asks for."""
    schema = resolved(schema)
    if schema.get("nullable"):
        return None
    if "anyOf" in schema:
        return blank(schema["anyOf"][0], name, depth)
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            known = schema.get("properties", {})
            return {
                key: blank(known.get(key, {}), key, depth + 1) for key in schema.get("required", [])
            }
        case "array":
            return []
        case "integer":
            return 0
        case "number":
            return 0
        case "boolean":
            return False
        case "string":
            return "usd" if "currency" in name else name[: schema.get("maxLength", 100)] or "x"
    return {} if depth else None


def blank_of(name: str) -> Json:
    """Return the least that an object of this name holds."""
    return blank(document()["components"]["schemas"][name])
