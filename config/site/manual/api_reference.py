"""The operations of the API as a page of the manual, made from its OpenAPI description."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drf_spectacular.generators import SchemaGenerator

PREFIX = "/api/v1/"
EVERYWHERE = ("after", "cursor", "limit")
"""Parameters of every operation, or of every list: told once, in the chapter on the API."""
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. parameters: of its query; body: names of its fields."""

    name: str
    method: str
    path: str
    summary: str
    parameters: tuple[str, ...]
    body: tuple[str, ...]

    @property
    def topic(self) -> str:
        """Return the first word of its path, by which it is found."""
        return self.path.removeprefix(PREFIX).partition("/")[0]


def operations_page() -> str:
    """Return every operation with what it takes, as Markdown, by the first word of its path."""
    by_topic: dict[str, list[Operation]] = defaultdict(list)
    for each in operations(description()):
        by_topic[each.topic].append(each)
    lines = [
        "# API reference",
        "",
        "Every operation under `/api/v1/`. What all have in common, such as tokens, lists and"
        " idempotency keys, is in [The API](/docs/api/); types and examples are in the"
        " [OpenAPI description](/api/openapi.json). A field with an asterisk is required.",
    ]
    for topic in sorted(by_topic):
        lines += [
            "",
            f"## {topic.replace('-', ' ').capitalize()}",
            "",
            "| operation | request | what it does | query | body |",
            "|---|---|---|---|---|",
            *(_line(each) for each in sorted(by_topic[topic], key=lambda each: each.path)),
        ]
    return "\n".join(lines)


def description() -> Document:
    """Return the OpenAPI description of the API."""
    generator = SchemaGenerator()  # type: ignore[no-untyped-call]  # drf-spectacular has no types
    document: Document = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document


def operations(document: Document) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI description."""
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            yield Operation(
                name=told["operationId"],
                method=method.upper(),
                path=path,
                summary=told["summary"],
                parameters=tuple(
                    each["name"]
                    for each in told["parameters"]
                    if each["in"] == "query" and each["name"] not in EVERYWHERE
                ),
                body=tuple(_fields_of(told, document)),
            )


def _fields_of(operation: Mapping[str, Any], document: Document) -> list[str]:
    """Return the fields of a body; those that must be there are marked with an asterisk."""
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    bodies: list[dict[str, Any]] = [each.get("schema", {}) for each in content.values()]
    schema = bodies[0] if bodies else {}
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    required = set(schema.get("required", ()))
    return [f"{name}{'*' if name in required else ''}" for name in schema.get("properties", {})]


def _line(operation: Operation) -> str:
    query = ", ".join(f"`{name}`" for name in operation.parameters)
    body = ", ".join(f"`{name}`" for name in operation.body)
    summary = operation.summary.replace("|", "\\|")
    request = f"`{operation.method} {operation.path.removeprefix(PREFIX)}`"
    return f"| `{operation.name}` | {request} | {summary} | {query} | {body} |"
