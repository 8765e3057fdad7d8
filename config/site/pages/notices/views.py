"""A person's inbox on pages, the bell that counts it, and how they want to be told."""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from config.site.parts.paging import part_of
from config.site.parts.zone import zone_of
from ledger import inbox, queries
from ledger.access.visits import actor_of
from ledger.digests import digest_time, set_digest_time
from ledger.domain.digest_times import HOURS_OF_DAY
from ledger.domain.notices import TOPICS
from ledger.inviting import can_mail

WHERE = "/notifications"
SETTINGS = "/settings/notifications"


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Show what the visitor was told."""
    actor = actor_of(request)
    actor.need_person()
    topic = request.GET.get("topic", "")
    topic = topic if topic in TOPICS else ""
    only_unread = request.GET.get("show") == "unread"
    part = part_of(request, queries.inbox(actor, topic=topic, unread=only_unread), "page")
    known = {str(name): terms for name, terms in TOPICS.items()}
    asked = urlencode({"topic": topic} if topic else {})
    context = {
        "notices": [{"row": row, "topic": known[row.topic].title} for row in part.rows],
        "part": part,
        "unread": queries.unread_count(actor),
        "topic": topic,
        "only_unread": only_unread,
        "all_href": f"{WHERE}?{asked}" if asked else WHERE,
        "unread_href": f"{WHERE}?{urlencode({'show': 'unread'})}" + (f"&{asked}" if asked else ""),
        "topics": [(name, terms.title) for name, terms in TOPICS.items()],
    }
    return render(request, "pages/notifications.html", context)


@require_GET
def open_one(request: HttpRequest, notice_id: UUID) -> HttpResponse:
    """Mark a notice as read and go to the page that it leads to."""
    actor = actor_of(request)
    row = queries.notice(actor, notice_id)
    inbox.mark_read(actor, notice_id, now=timezone.now())
    return HttpResponseRedirect(row.link or WHERE)


@require_POST
def read(request: HttpRequest) -> HttpResponse:
    """Mark all of the inbox, or all of a topic, as read."""
    actor = actor_of(request)
    topic = request.POST.get("topic", "")
    inbox.mark_all_read(actor, topic=topic if topic in TOPICS else "", now=timezone.now())
    return HttpResponseRedirect(f"{WHERE}?{urlencode({'topic': topic})}" if topic else WHERE)


@require_safe
def bell(request: HttpRequest) -> HttpResponse:
    """Show the bell alone, for pages that stay open."""
    actor_of(request).need_person()
    return render(request, "shell/bell.html")


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """Show how the visitor is told of each topic; sent, set it."""
    actor = actor_of(request)
    user_id = actor.need_person()
    if request.method == "POST":
        in_inbox, now = request.POST.getlist("inbox"), timezone.now()
        for topic in TOPICS:
            mail = request.POST.get(f"mail-{topic}", "")
            inbox.wish(
                actor,
                topic,
                in_inbox=topic in in_inbox,
                by_mail=mail in ("once", "daily"),
                daily=mail == "daily",
                now=now,
            )
        asked = request.POST.get("hour", "")
        if asked.isdecimal():
            at, here = min(int(asked), HOURS_OF_DAY - 1), str(zone_of(request))
            set_digest_time(actor, hour=at, zone=here, now=now)
        messages.success(request, "You are told as you wish from now on.")
        return HttpResponseRedirect(SETTINGS)
    wishes = queries.wishes(user_id)
    hour, zone = digest_time(user_id)
    context = {
        "hour": hour,
        "hours": range(HOURS_OF_DAY),
        "zone": zone,
        "zone_here": str(zone_of(request)),
        "topics": [
            {"name": topic, "terms": terms, "wish": wishes[topic]}
            for topic, terms in TOPICS.items()
        ],
        "can_mail": can_mail(),
        "has_webhooks": "operator" in actor.roles,
    }
    return render(request, "pages/notification_settings.html", context)
