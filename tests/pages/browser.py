"""A real browser on a real server: the site served over ASGI on loopback, looked at by Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import axe_playwright_python  # type: ignore[import-untyped]  # it has no types
import pytest
from django.db import connections
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.pages.serving import Forked, Site, Started

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-color-profile=srgb",
]
START_SECONDS = 120.0
PATIENCE_MS = 120_000
"""How long a page may take to come or to show something, where the machine has much to do."""
WIDTHS = (1280, 390)
"""Of a desk and of a phone."""
AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")).read_text()


def browser_path() -> str:
    """Return where a browser is, or skip the test and say so."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed (see tests/install-tools.sh)")


@contextmanager
def served(log: Path, *, port: int = 0, **environment: str) -> Iterator[str]:
    """Serve the site on a free port, in a process of its own, and yield its address.

    log: where the process writes; read it when a test fails.
    port: the one to serve on, if it must be known before.
    environment: settings beside those of the test.
    """
    listening = socket.socket()
    listening.bind(("127.0.0.1", port))
    listening.listen()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    site: Site = Started(listening, log, environment) if environment else Forked(listening, log)
    try:
        # The socket listens already, so this waits until the server comes to answer it.
        with urlopen(f"{address}/healthz", timeout=START_SECONDS) as answer:
            assert answer.status == 200
        yield address
    finally:
        site.end(START_SECONDS)
        listening.close()


_ends = ExitStack()


def end_browser() -> None:
    """End the browser of this run, if there is one."""
    _ends.close()


@cache
def chromium() -> str:
    """Start the one browser of this run of tests; return where it is steered from.

    It starts once, for that takes longer than most of what is looked at; what one test leaves in
    it (cookies, caches, sockets) is in a context of that test's own.
    """
    profile = tempfile.mkdtemp(prefix="offpeak-browser")
    words = [browser_path(), "--headless=new", "--remote-debugging-port=0", *FLAGS]
    process = subprocess.Popen(
        [*words, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    assert process.stderr is not None
    _ends.callback(shutil.rmtree, profile, ignore_errors=True)
    _ends.callback(process.stderr.close)
    _ends.callback(process.wait, START_SECONDS)
    _ends.callback(process.terminate)
    for line in process.stderr:
        if "DevTools listening on" in line:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return line.split()[-1]
    raise AssertionError("the browser ended before it could be steered")


@cache
def steered() -> tuple[Browser, asyncio.AbstractEventLoop]:
    """Return the browser of this run, and the loop of the one program that steers it.

    To start that takes half a second of a processor.
    """
    steered_at = chromium()
    playwright = sync_playwright().start()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        with at_work(loop):
            playwright.stop()

    _ends.callback(stop)
    return playwright.chromium.connect_over_cdp(steered_at), loop


@contextmanager
def at_work(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let Playwright's loop be the one that runs in this thread; else tests have none there."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@contextmanager
def browsing(
    *, scheme: str = "light", width: int = 1280
) -> Iterator[tuple[BrowserContext, Page, list[str]]]:
    """Open a window of nobody yet; yield its context, a page, and what the page complains about."""
    # Playwright's own loop runs in this thread, which Django would take for a mistake of ours.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    complaints: list[str] = []
    browser, loop = steered()
    with at_work(loop):
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            reduced_motion="reduce",  # what moves is painted sixty times a second, by processors
            viewport={"width": width, "height": 900},
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", lambda said: _note(complaints, said.type, said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        try:
            yield context, page, complaints
        finally:
            # While Playwright's loop runs, Django keeps connections apart from the thread's own.
            connections.close_all()
            context.close()


def _note(complaints: list[str], kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        complaints.append(f"{kind}: {text}")


def enter(context: BrowserContext, address: str, cookies: dict[str, Any]) -> None:
    """Carry a test client's session into the browser."""
    context.add_cookies(
        [{"name": name, "value": morsel.value, "url": address} for name, morsel in cookies.items()]
    )


SCHEMES = ("light", "dark")
FIRST_SCHEME = ["light", pytest.param("dark", marks=pytest.mark.soak)]
"""For what is held to `faults`, which looks at the colours of the other scheme too."""
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe that see colours: the others find the same in any scheme."""
TRANSITIONS_OVER = """Promise.allSettled(
    document.getAnimations().filter(one => one instanceof CSSTransition).map(one => one.finished)
)"""
"""Colours change over a moment, in which they have too little contrast."""
DIFFERENT_LOOKS = """() => {
  const under = new Map([[null, ""]]), seen = new Set(), found = [];
  const lies_on = (each) => {
    if (!under.has(each)) {
      const {backgroundColor, backgroundImage, opacity, filter, mixBlendMode, position} =
        getComputedStyle(each);
      const own = [backgroundColor, backgroundImage, opacity, filter, mixBlendMode].join();
      const placed = ["absolute", "fixed", "sticky"].includes(position);
      const plain = own === "rgba(0, 0, 0, 0),none,1,none,normal";
      under.set(each, lies_on(each.parentElement) + (plain ? "" : `/${own}`)
        + (placed ? `/${under.size}` : ""));
    }
    return under.get(each);
  };
  for (const each of document.body.querySelectorAll("*")) {
    const speaks = [...each.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!speaks && !each.matches("input, select, textarea")) continue;
    const {color, fontSize, fontWeight, textShadow, textDecorationLine} = getComputedStyle(each);
    const look = [each.localName, color, fontSize, fontWeight, textShadow, textDecorationLine,
      getComputedStyle(each.parentElement).color, lies_on(each)].join();
    if (!seen.has(look)) found.push(each);
    seen.add(look);
  }
  return found;
}"""
"""One of all texts that look alike: that have the same colours, and lie on the same. What is placed
over others is like nothing else."""
RUN_AXE = """async (rules) => (await axe.run(rules.length ? {include: (LOOKS)()} : document, {
  resultTypes: ["violations"],
  preload: {assets: ["media"]},
  ...(rules.length ? {runOnly: rules} : {}),
})).violations.flatMap((each) => each.nodes.map(
  (node) => `${each.id}: ${node.target} ${node.failureSummary}`))""".replace(
    "LOOKS", DIFFERENT_LOOKS
)
"""Only what is wrong comes back: all that is right takes longer to read than to find. No rule of
those that run asks for the style sheets."""


def violations(page: Page, *colours: str) -> list[str]:
    """Return what axe finds wrong with a page. Evaluated, so the page's policy stays in force.

    colours: the only rules to look at, and of what looks alike in their eyes at one. For a page
    that has been looked at as a whole: most time goes into the colours of each single text.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found: list[str] = page.evaluate(RUN_AXE, colours)
    return found


def paint(page: Page, scheme: str) -> None:
    """Show an open page in the other colours, and wait until all of them are."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.evaluate(TRANSITIONS_OVER)


def faults(page: Page, scheme: str, *, also: str = "[]") -> list[str]:
    """Return what is wrong with how an open page looks: in both schemes, wide and narrow.

    scheme: the one it was opened in.
    also: an expression in JavaScript for what else is wrong, in a list; asked at each width.
    """
    found = violations(page)
    for other in SCHEMES:
        if other != scheme:
            paint(page, other)
            found += [f"{each} when {other}" for each in violations(page, *COLOURS)]
    paint(page, scheme)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if (wide := overflow(page)) > 0:
            found.append(f"{wide} px too wide at {width}")
        found += [f"{each} at {width}" for each in page.evaluate(also)]
    return found


WIDER = "document.documentElement.scrollWidth - window.innerWidth"
SETTLE_MS_MAX = 2_000
COMES_TRUE = """(most) => new Promise((resolve) => {
  const until = performance.now() + most;
  const look = () => {
    if (CONDITION) resolve(true);
    else if (performance.now() > until) resolve(false);
    else requestAnimationFrame(look);
  };
  look();
})"""


def comes_true(page: Page, condition: str, *, within_ms: int = SETTLE_MS_MAX) -> bool:
    """Return whether a condition (an expression in JavaScript) holds, now or in a frame to come.

    Playwright's own `wait_for_function` reads its text anew in each frame, which a page that
    forbids `eval` refuses from the second frame on. Here the page is given one function, once.
    """
    return bool(page.evaluate(COMES_TRUE.replace("CONDITION", condition), within_ms))


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than the window, once it has settled.

    A chart follows a change of the window's size in the frames after it.
    """
    comes_true(page, f"{WIDER} <= 0")
    return int(page.evaluate(WIDER))
