"""A benchmark that cannot measure says so, and is not a figure of 0."""

from __future__ import annotations

import http.client
import http.server
import threading
from typing import Any

import pytest

from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.served import together


@pytest.fixture
def port() -> Any:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_client_that_falls_over_is_no_figure(port: int) -> None:
    def fails(client: http.client.HTTPConnection) -> bool:
        raise AssertionError("a batch was answered with 409")

    with pytest.raises(AssertionError, match="answered with 409"):
        together(port, [fails], 0.1)


def test_no_work_at_all_is_no_figure(port: int) -> None:
    with pytest.raises(AssertionError, match="no client"):
        together(port, [lambda client: False], 0.1)


def test_each_benchmark_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(command: list[str], check: bool) -> Any:
        asked.append(command[-1])
        return type("Done", (), {"returncode": int(command[-1] == "ingest")})

    monkeypatch.setattr("subprocess.run", run)

    assert benchmarks.each_alone(benchmarks.NAMES) == ["ingest"]
    assert asked == list(benchmarks.NAMES)


def test_figures_say_whether_kernels_run_compiled() -> None:
    assert benchmarks.kernels().startswith("kernels compiled, numba ")
