"""What every test may use: the memory store, a fixed noon, a database of this run's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import httpcore  # noqa: F401  # see below
import pytest
from django.db import connection
from hypothesis import HealthCheck, settings

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Meta
from tests.emptying import empty_tables
from tests.kept import end_kept
from tests.kernels import compile_all, use_compiled
from tests.once import all_kept, find_static_files_once

# httpcore is imported here for the anyio that it imports: that is a plugin, so pytest writes its
# assertions anew, and Python 3.11 may fail to build a syntax tree where another thread does
# (python/cpython#106905). Here there is no other thread yet.
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""A Monday."""

SOMEBODY = Meta(actor="user:test")

settings.register_profile(
    "untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")
"""No property is held to a time: a slow machine, or a busy one, is no fault. What CI sets stays."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def work_folder() -> Iterator[Path]:
    """Where leased work has its files: another run of pytest closes `tmp_path` to other users."""
    with TemporaryDirectory(prefix="offw", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
) -> None:
    """Give each run its own database, so that two runs on one machine do not meet."""
    from django.conf import settings as of_site
    from django.test import TransactionTestCase

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))[:8]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    of_site.DATABASES["default"].setdefault("TEST", {})["NAME"] = f"test_offpeak_{run}{worker}"
    TransactionTestCase._fixture_teardown = empty_tables  # type: ignore[attr-defined]  # Django's own


@pytest.fixture
def committed_store(transactional_db: None) -> Iterator[None]:
    """Clear the event table for a test that commits: it refuses the ordinary way."""
    name = str(connection.settings_dict["NAME"])
    assert name.startswith("test_"), "mark the test with django_db: this is no test database"
    clear_event_table()
    yield
    clear_event_table()


def clear_event_table() -> None:
    """Empty `es_event`, which only a superuser with triggers off can do."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("TRUNCATE es_event")
        cursor.execute("SET session_replication_role = DEFAULT")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process run all tests that share something made once for their module.

    Else each makes it again. Groups are run first, so that none is left over at the end.
    """
    for item in items:
        made = getattr(item, "_fixtureinfo", None)
        if made is None or item.get_closest_marker("xdist_group"):
            continue
        used = [found[-1] for found in made.name2fixturedefs.values()]
        if any(each.scope == "module" and each.baseid for each in used):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make ready for thousands of tests in one process."""
    find_static_files_once()
    with all_kept():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test that commits the tables to itself."""
    end_kept(item)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once before several processes would each do so, and tests wait for it."""
    if session.config.getoption("numprocesses", None):
        compile_all()
    else:
        use_compiled()  # before any test module takes a kernel by its name


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let CI fail where a test was skipped for want of something: a gap must not look green."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or hasattr(session.config, "workerinput") or reporter is None:
        return
    missing = [report for report in reporter.stats.get("skipped", []) if not _is_expected(report)]
    if missing and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(missing)} tests were skipped, which CI does not allow", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_expected(report: pytest.TestReport) -> bool:
    """Tell a skip for what no machine can install from one that says what is missing.

    It is what this user may not do, and a secret of somebody else's service.
    """
    return any(each in str(report.longrepr) for each in ("only root", "STRIPE_TEST_KEY"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the browser of this process, and the tests' own PostgreSQL with the last run on it.

    Here and not at Python's exit, which a worker of several may not come to.
    """
    from django.conf import settings

    if (browser := sys.modules.get("tests.pages.browser")) is not None:
        browser.end_browser()
    if hasattr(config, "workerinput") or settings.ENV.database_url:
        return
    from config.database.embedded import stop

    stop(settings.HOME, unless_used=True)
