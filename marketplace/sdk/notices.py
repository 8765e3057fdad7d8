"""`offpeak notices` and `offpeak webhooks`: what you were told, and where it is posted to."""

from __future__ import annotations

from typing import Annotated

import typer

from .session import Yes, confirm, session_of

app = typer.Typer(help="What you were told.", no_args_is_help=True)
webhooks = typer.Typer(
    help="Where your organisation's notices are posted to.", no_args_is_help=True
)

COLUMNS = (
    ("notice_id", "notice"),
    ("at", "at"),
    ("topic", "topic"),
    ("title", "title"),
    ("read_at", "read"),
)
WEBHOOKS = (
    ("webhook_id", "webhook"),
    ("url", "address"),
    ("topics", "topics"),
    ("failures", "failures in a row"),
    ("off_at", "off since"),
)
MESSAGES = (
    ("delivery_id", "message"),
    ("created_at", "at"),
    ("title", "title"),
    ("state", "state"),
    ("attempts", "attempts"),
)
SECRET = (("webhook_id", "webhook"), ("secret", "signing secret, shown once"))
Webhook = Annotated[str, typer.Argument(help="a webhook's id")]
Topic = Annotated[str, typer.Option("--topic", help="only of this topic, such as money")]


@app.command("list")
def list_notices(
    context: typer.Context,
    unread: Annotated[bool, typer.Option("--unread", help="only what is not read")] = False,
    topic: Topic = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000)] = 50,
) -> None:
    """List what you were told, the newest first."""
    session = session_of(context)
    asked: dict[str, object] = {"unread": "true"} if unread else {}
    if topic:
        asked["topic"] = topic
    session.printer.table(
        session.client.all("notices", limit=limit, **asked), COLUMNS, empty="No notices."
    )


@app.command("read")
def read(
    context: typer.Context,
    notices: Annotated[
        list[str] | None, typer.Argument(help="ids of notices; without: all of them")
    ] = None,
) -> None:
    """Mark notices as read."""
    session = session_of(context)
    done = session.client.post("notices/read", {"notice_ids": notices} if notices else {})
    session.printer.done(done, f"{done['unread']} are left unread.")


@webhooks.command("list")
def list_webhooks(context: typer.Context) -> None:
    """List webhooks, without their secrets."""
    session = session_of(context)
    session.printer.table(session.client.all("webhooks"), WEBHOOKS, empty="No webhooks.")


@webhooks.command("add")
def add(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="where to post, such as https://hooks.example/x")],
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="of what; may be repeated; without: of all")
    ] = None,
) -> None:
    """Set a webhook up; its signing secret is printed this once."""
    session = session_of(context)
    made = session.client.post("webhooks", {"url": url, "topics": topics or []})
    session.printer.facts(made, SECRET)


@webhooks.command("secret")
def secret(context: typer.Context, webhook: Webhook) -> None:
    """Make a new signing secret; the one before signs beside it for 24 hours."""
    session = session_of(context)
    made = session.client.post(f"webhooks/{webhook}/secret")
    session.printer.facts(made, SECRET)


@webhooks.command("test")
def test(context: typer.Context, webhook: Webhook) -> None:
    """Post a message that says nothing, to see how it arrives."""
    session = session_of(context)
    done = session.client.post(f"webhooks/{webhook}/test")
    session.printer.done(done, f"Message {done['delivery_id']} is on its way.")


@webhooks.command("log")
def log(
    context: typer.Context,
    webhook: Webhook,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000)] = 50,
) -> None:
    """List what was posted to a webhook or waits, the newest first."""
    session = session_of(context)
    rows = (
        {**each, "attempts": len(each["attempts"])}
        for each in session.client.all(f"webhooks/{webhook}/deliveries", limit=limit)
    )
    session.printer.table(rows, MESSAGES, empty="Nothing was posted yet.")


@webhooks.command("on")
def on(context: typer.Context, webhook: Webhook) -> None:
    """Post to a webhook again that was switched off, or that is left alone for a while."""
    session = session_of(context)
    session.printer.done(session.client.post(f"webhooks/{webhook}/on"), "It is on.")


@webhooks.command("rm")
def remove(context: typer.Context, webhook: Webhook, yes: Yes = False) -> None:
    """Remove a webhook with the log of what it was sent."""
    session = session_of(context)
    confirm(session, f"Remove webhook {webhook}?", yes=yes)
    session.printer.done(session.client.delete(f"webhooks/{webhook}"), "Removed.")
