"""Checks the agent's figures on a machine with a real NVIDIA GPU, and prints a JSON report.

It starts a server of its own on loopback, gives the agent one lease for each of the first two
GPUs, and compares granted, occupied and busy time with what the load itself wrote down. The load
is this file again, run by the agent as leased work: it fills memory through libcuda (no CUDA
toolkit, no torch), rests, and fills again. No setting of a GPU is read or changed beyond that.

    python tests/real_gpu/probe.py [--seconds 20] [--out report.json]

Needs Python 3.11 or later, the wheel nvidia-ml-py, NVIDIA's driver, and the folder metering/agent.
Ends with 0 when every check holds, 1 when one does not, 2 when there is no usable GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "probe"
LOAD_BYTES = 512 * 1024 * 1024
MEMSETS_PER_ROUND = 64
TICK_MS = 500
GPUS_MAX = 2
WATTS_MIN, WATTS_MAX = 3, 2_000


def agent_module(name: str) -> Any:
    """Import a module of the agent without importing the package `metering` around it."""
    folder = Path(tempfile.gettempdir()) / f"offpeak-probe-{os.getpid()}"
    if str(folder) not in sys.path:
        folder.mkdir(exist_ok=True)
        link = folder / "offpeak_agent"
        if not link.exists():
            link.symlink_to(ROOT / "metering" / "agent")
        sys.path.insert(0, str(folder))
    return importlib.import_module(f"offpeak_agent.{name}" if name else "offpeak_agent")


# --- the load: runs as leased work --------------------------------------------------------------


def load(seconds: float) -> None:
    """Keep the GPU busy for 40 % of the time, idle for 20 %, busy for 40 %; print the moments."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: Any) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            print(json.dumps({"error": f"{name} returned {code}"}), flush=True)
            sys.exit(3)

    moments: dict[str, Any] = {"began": time.time()}
    call("cuInit", 0)
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDeviceGet", ctypes.byref(device), 0)
    before = time.time()
    # The primary context, as CUDA's runtime uses it; its call has kept one form in all versions.
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    moments["on_gpu"] = [before, time.time()]
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(LOAD_BYTES))
    busy = []
    for share, is_busy in ((0.4, True), (0.2, False), (0.4, True)):
        start = time.time()
        until = start + seconds * share
        if not is_busy:
            time.sleep(max(0.0, until - time.time()))
            continue
        while time.time() < until:
            for _ in range(MEMSETS_PER_ROUND):
                call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), ctypes.c_size_t(LOAD_BYTES))
            call("cuCtxSynchronize")
        busy.append([start, time.time()])
    moments["busy"] = busy
    moments["off_gpu"] = time.time()
    print(json.dumps(moments), flush=True)


# --- the server: the wire contract, in memory ---------------------------------------------------


class Told:
    """What the agent told."""

    def __init__(self) -> None:
        self.registration: Any = None
        self.intervals: dict[tuple[UUID, int], Any] = {}
        self.health: dict[tuple[UUID, int], Any] = {}
        self.reports: dict[UUID, Any] = {}
        self.desired: list[Any] = []


def serve(told: Told) -> ThreadingHTTPServer:
    wire = agent_module("wire")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            data = wire.dump(self.decide(body).to_json())
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = answer  # noqa: N815  # the names http.server asks for

        def decide(self, body: bytes) -> Any:
            now = datetime.now(UTC)
            if self.path == wire.HOST_PATH:
                told.registration = wire.Registration.from_json(wire.parse(body))
                return wire.Registered(
                    host_id=uuid4(), sample_seconds=2, poll_seconds=1, server_time=now
                )
            if self.path == wire.ASSIGNMENTS_PATH:
                return wire.Assignments(server_time=now, assignments=tuple(told.desired))
            if self.path == wire.REPORTS_PATH:
                reports = wire.ReportBatch.from_json(wire.parse(body)).reports
                told.reports |= {each.report_id: each for each in reports}
                return wire.ReportsAccepted(accepted=len(reports))
            batch = wire.SampleBatch.from_json(wire.parse(body))
            told.intervals |= {(batch.boot_id, each.seq): each for each in batch.batch}
            told.health |= {(batch.boot_id, each.seq): each for each in batch.health}
            last = max(each.seq for each in [*batch.batch, *batch.health])
            return wire.Acknowledged(acknowledged_seq=last)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# --- the check ----------------------------------------------------------------------------------


def assign(told: Told, uuid: str, seconds: float) -> UUID:
    wire = agent_module("wire")
    now = datetime.now(UTC)
    lease_id = uuid4()
    told.desired.append(
        wire.Assignment(
            lease_id=lease_id,
            gpu_uuids=(uuid,),
            starts_at=now - timedelta(seconds=5),
            ends_at=now + timedelta(hours=1),
            phase="run",
            stop_at=None,
            grace_seconds=5,
            runtime="process",
            command=(sys.executable, str(Path(__file__).resolve()), "--load", str(seconds)),
            environment={},
            workload_kind="probe",
        )
    )
    return lease_id


def compare(told: Told, lease_id: UUID, state_dir: Path) -> dict[str, Any]:
    """Set the agent's figures of one lease beside the load's own."""
    intervals = [each for each in told.intervals.values() if each.lease_id == lease_id]
    intervals.sort(key=lambda each: each.start_ms)
    output = state_dir / "leases" / str(lease_id) / "stdout.log"
    text = output.read_text() if output.exists() else ""
    errors = output.with_name("stderr.log")
    own = json.loads(text.splitlines()[-1]) if text else {"error": "the load wrote nothing"}
    if "error" in own:
        own["stderr"] = errors.read_text()[-2000:] if errors.exists() else ""
        return {"lease_id": str(lease_id), "load": own, "checks": {"the load ran": False}}
    figures = {
        name: None
        if any(getattr(each, name) is None for each in intervals)
        else sum(getattr(each, name) for each in intervals)
        for name in ("granted_ms", "occupied_ms", "busy_ms", "energy_mj")
    }
    length_ms = intervals[-1].end_ms - intervals[0].start_ms if intervals else 0
    occupied_ms = round((own["off_gpu"] - own["on_gpu"][1]) * 1000)
    busy_ms = round(sum(end - start for start, end in own["busy"]) * 1000)
    checks = {
        "the load ran": True,
        "intervals follow each other without gap": all(
            earlier.end_ms == later.start_ms for earlier, later in pairwise(intervals)
        ),
        "granted is the length from start to end, exactly": figures["granted_ms"] == length_ms > 0,
        "granted covers the load": length_ms >= (own["off_gpu"] - own["began"]) * 1000 - 1,
        "occupied within two looks and the context's set-up": within(
            figures["occupied_ms"],
            occupied_ms,
            2 * TICK_MS + (own["on_gpu"][1] - own["on_gpu"][0]) * 1000 + 500,
        ),
        "busy within 15 % and two seconds": within(
            figures["busy_ms"], busy_ms, busy_ms * 0.15 + 2_000
        ),
        "energy is what a card can take": None
        if figures["energy_mj"] is None or not length_ms
        else WATTS_MIN <= figures["energy_mj"] / length_ms <= WATTS_MAX,
        "memory was seen": any((each.memory_used_mib or 0) >= 512 for each in intervals),
    }
    return {
        "lease_id": str(lease_id),
        "agent": figures,
        "truth": {"occupied_ms": occupied_ms, "busy_ms": busy_ms},
        "memory_used_mib": max((each.memory_used_mib or 0 for each in intervals), default=0),
        "intervals": [each.to_json() for each in intervals],
        "reports": [each.to_json() for each in told.reports.values() if each.lease_id == lease_id],
        "load": own,
        "checks": checks,
    }


def within(found: int | None, truth: int, tolerance_ms: float) -> bool | None:
    """Return whether a figure is near the truth; None when it was not measured."""
    return None if found is None else abs(found - truth) <= tolerance_ms


def raw_utilisation(gpus: Any, uuid: str, seen: list[list[int]], stop: threading.Event) -> None:
    """Write down what the driver itself says, for whoever has to explain a difference."""
    newest = 0
    while not stop.wait(0.2):
        try:
            reading = gpus.read(uuid, since_us=newest or int(time.time() * 1e6) - 1_000_000)
        except Exception as error:  # whatever it is, the report shows it
            seen.append([int(time.time() * 1000), -1, -1, len(str(error))])
            continue
        for each in reading.utilisation or ():
            newest = max(newest, each.until_us)
            row = [int(time.time() * 1000), each.pid, each.until_us // 1000, each.percent]
            seen.append(row)


def probe(seconds: float) -> dict[str, Any]:
    agent_code, clock_code = agent_module("agent"), agent_module("clock")
    nvml, guarded = agent_module("gpus.nvml"), agent_module("gpus.guarded")
    process, uplink = agent_module("runtimes.process"), agent_module("uplink")
    told = Told()
    server = serve(told)
    state_dir = Path(tempfile.mkdtemp(prefix="offpeak-probe-state-"))
    clock = clock_code.SystemClock()
    runtime = process.ProcessRuntime(state_dir, clock=clock)
    agent = agent_code.Agent(
        agent_code.AgentConfig(state_dir=state_dir, hostname="probe", tick_ms=TICK_MS),
        gpus=guarded.GuardedGpus(nvml.NvmlGpus()),
        runtime=runtime,
        uplink=uplink.HttpUplink(f"http://127.0.0.1:{server.server_address[1]}", TOKEN),
        clock=clock,
    )
    watcher, stop = nvml.NvmlGpus(), threading.Event()
    raw: list[list[int]] = []
    inventory = [gpu.to_json() for gpu in watcher.inventory()]
    measured = [
        each.to_json()
        for each in agent_module("measured").measured(watcher, [gpu["uuid"] for gpu in inventory])
    ]
    uuids = [gpu["uuid"] for gpu in inventory][:GPUS_MAX]
    leases = [assign(told, uuid, seconds) for uuid in uuids]
    threads = [threading.Thread(target=agent.run, args=[stop])]
    if uuids:
        arguments = (watcher, uuids[0], raw, stop)
        threads.append(threading.Thread(target=raw_utilisation, args=arguments))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds + 60
    while time.monotonic() < deadline and not is_over(told, leases):
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    agent.close()
    server.shutdown()
    results = [compare(told, lease_id, state_dir) for lease_id in leases]
    return {
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "pids_are_the_hosts": nvml.pids_are_the_hosts(),
        "inventory": inventory,
        "measured": measured,
        "leases": results,
        "health": [each.to_json() for each in told.health.values()],
        "raw_utilisation_ms": {"columns": ["seen", "pid", "until", "percent"], "rows": raw[:400]},
        "fine": bool(results)
        and all(check is not False for each in results for check in each["checks"].values()),
        "not_measured": sorted(
            {name for each in results for name, check in each["checks"].items() if check is None}
        ),
    }


def is_over(told: Told, leases: list[UUID]) -> bool:
    """Return whether each lease's end is reported and its last interval is here."""
    ended = {
        e.lease_id: e.at.timestamp() * 1000 for e in told.reports.values() if e.what != "started"
    }
    last = {e.lease_id: 0 for e in told.intervals.values()}
    for each in told.intervals.values():
        last[each.lease_id] = max(last[each.lease_id], each.end_ms)
    return all(
        lease in ended and (last.get(lease, 0) >= ended[lease] - 1 or lease not in last)
        for lease in leases
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the agent on a real GPU.")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the load")
    parser.add_argument("--out", type=Path, help="write the report there too")
    parser.add_argument("--load", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        load(options.load)
        return 0
    try:
        report = probe(options.seconds)
    except Exception as error:
        if type(error).__name__ not in ("GpuFault", "ModuleNotFoundError"):
            raise
        print(json.dumps({"fine": False, "error": str(error)}))
        return 2
    text = json.dumps(report, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 0 if report["fine"] else 1


if __name__ == "__main__":
    sys.exit(main())
