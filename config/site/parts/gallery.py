"""A page that shows every part with sample data: where parts are made and looked at. Debug only."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from config.site.parts.badges import look_of
from config.site.parts.charts import Level, Slot

NOON = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
CENTS = 10_000_000
STATES = [
    "open",
    "partially-filled",
    "filled",
    "listed",
    "paused",
    "withdrawn",
    "scheduled",
    "starting",
    "active",
    "reclaiming",
    "ending",
    "closed",
    "failed",
    "provisioning",
    "running",
    "terminated",
    "healthy",
    "late",
    "silent",
]


class SampleForm(forms.Form):
    """A form with one wrong answer, to see how that looks."""

    gpu = forms.ChoiceField(
        label="GPU", choices=[(f"ada-{n}/0", f"ada-{n}/0 H100") for n in range(4)]
    )
    starts_at = forms.DateTimeField(
        label="From", widget=forms.DateTimeInput(attrs={"type": "datetime-local"})
    )
    ends_at = forms.DateTimeField(
        label="To", widget=forms.DateTimeInput(attrs={"type": "datetime-local"})
    )
    floor = forms.DecimalField(
        label="Floor price",
        widget=forms.TextInput(attrs={"inputmode": "decimal", "data-next": ""}),
    )
    label = forms.CharField(label="Cost centre", required=False)
    burst = forms.BooleanField(label="May burst to the cloud", required=False)

    def clean_floor(self) -> Any:
        raise forms.ValidationError("Prices have at most nine decimals. Give 1.95 or 1.950000001.")


def gallery(request: HttpRequest) -> HttpResponse:
    """Render every part once."""
    context = {
        "states": [(state, look_of(state)) for state in STATES],
        "cards": _cards(),
        "bids": [Level((212 - 2 * n) * CENTS, 6 + n % 4 * 5) for n in range(11)],
        "asks": [Level((218 + 3 * n) * CENTS, 4 + n % 3 * 7) for n in range(11)],
        "points": [
            [
                int(NOON.timestamp()) - 86400 + n * 600,
                round(2.1 + 0.2 * math.sin(n / 19) + 0.03 * math.sin(n * 1.7), 3),
            ]
            for n in range(144)
        ],
        "slots": _slots(),
        "heat": {
            "columns": [f"{hour:02d}" for hour in range(24)],
            "rows": [
                {"label": day, "percents": [_percent(n, hour) for hour in range(24)]}
                for n, day in enumerate(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
            ],
        },
        "grid": sample_grid(),
        "form": SampleForm(
            {
                "gpu": "ada-1/0",
                "starts_at": "2026-11-28T22:00",
                "ends_at": "2026-11-29T06:00",
                "floor": "1.9500000001",
            }
        ),
        "noon": NOON,
        "tape": [
            (NOON - timedelta(seconds=37 * n), text, price)
            for n, (text, price) in enumerate(
                [
                    ("Leased 8 \N{MULTIPLICATION SIGN} H100 for 6 h", "2.14"),
                    ("New offer: 4 \N{MULTIPLICATION SIGN} A100, tonight 22:00 to 06:00", "1.02"),
                    ("Bid for 16 \N{MULTIPLICATION SIGN} H100 waits: price too low", "1.80"),
                    ("Round 4 182 cleared 11 of 14 bids", "2.15"),
                    ("Reclaim announced: host ada-3, 10 min notice", ""),
                    ("Leased 2 \N{MULTIPLICATION SIGN} L40S for 45 min", "0.64"),
                    ("Burst: 4 \N{MULTIPLICATION SIGN} H100 started in eu-west-1", "3.93"),
                ]
            )
        ],
        "funnel": [
            ("GPUs on the market now", 120, 120),
            ("are H100 with 80 GB", 40, 120),
            ("on one host, 8 together", 24, 120),
            ("free from 22:00 for 6 h", 16, 120),
            ("at $1.80 or less", 0, 120),
        ],
    }
    return render(request, "gallery/gallery.html", context)


def _cards() -> list[dict[str, Any]]:
    kinds = (
        ("H100 80 GB", 2.14, 24, 0.7),
        ("A100 80 GB", 1.05, 40, -1.4),
        ("L40S 48 GB", 0.64, 12, 2.1),
        ("MIG 1g.10gb", 0.18, 96, -2.8),
    )
    return [
        {
            "name": name,
            "price": f"{price:.2f}",
            "free": free,
            "change": f"{abs(change):.1f}%",
            "up": change > 0,
            "values": [
                price + price * 0.05 * math.sin(n / 4 + free) + price * 0.02 * math.cos(n)
                for n in range(40)
            ],
        }
        for name, price, free, change in kinds
    ]


def _slots() -> list[Slot]:
    def night(hour: float) -> bool:
        return hour >= 20 or hour < 6

    slots = []
    for n in range(48):
        hour = (12 + n / 2) % 24
        free = 74 + round(20 * math.sin(n / 3)) if night(hour) else 22 + round(9 * math.sin(n / 2))
        slots.append(
            Slot(
                f"{int(hour):02d}:{'30' if hour % 1 else '00'}",
                free,
                30 + round(14 * math.cos(n / 5)),
                night(hour),
            )
        )
    return slots


def _percent(day: int, hour: int) -> int | None:
    if day == 6 and hour > 13:
        return None
    return round(abs(100 * math.sin(day * 0.7 + hour / 5)))


def sample_grid() -> dict[str, Any]:
    """A day of half hours for four GPUs, from noon to noon."""
    starts = [NOON + timedelta(minutes=30 * n) for n in range(49)]
    taken = {
        0: [(2, 8, "leased", "Leased 2.14", "14:00 to 17:00")],
        1: [(18, 12, "offered", "Listed 1.95", "from 21:00"), (0, 6, "own", "Own use", "")],
        2: [
            (6, 10, "reclaiming", "Reclaim 15:10", "10 min notice"),
            (30, 8, "burst", "Burst 3.93", ""),
        ],
        3: [],
    }
    rows = []
    for n in range(4):
        cells: list[dict[str, Any]] = []
        at = 0
        for start, span, state, text, detail in sorted(taken[n]):
            cells += [_free(slot) for slot in range(at, start)]
            cells.append(
                {
                    "state": state,
                    "span": span,
                    "text": text,
                    "detail": detail,
                    "title": f"{text} {detail}",
                    "hour": start % 2 == 0,
                }
            )
            at = start + span
        cells += [_free(slot) for slot in range(at, 48)]
        rows.append(
            {"key": f"ada-{n}/0", "name": f"ada-{n}/0", "detail": "H100 80 GB", "cells": cells}
        )
    return {
        "label": "Windows from Saturday 28 November 12:00, times in UTC",
        "starts": [f"{start:%Y-%m-%dT%H:%M}" for start in starts],
        "slots": range(48),
        "heads": [{"text": f"{start:%H}", "span": 2} for start in starts[:48:2]],
        "rows": rows,
    }


def _free(slot: int) -> dict[str, Any]:
    hour = (12 + slot / 2) % 24
    return {"hour": slot % 2 == 0, "night": hour >= 20 or hour < 6}
