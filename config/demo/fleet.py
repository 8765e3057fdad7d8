"""The demo's agents: one for each host, real agents with simulated GPUs and pretended work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import structlog

from bursting.queries import machines_up
from config.demo.cast import EVERY_MACHINE, WORKBENCH
from config.demo.secrets import Secrets
from config.demo.workbench import why_not
from config.overflow import token_of
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import SystemClock
from metering.agent.gpus.simulated import MODELS, SimulatedGpus, parse_models
from metering.agent.runtimes.simulated import SimulatedRuntime
from metering.agent.uplink import HttpUplink

log = structlog.get_logger()


class Fleet:
    """Runs an agent in a thread for each machine of the cast and each one rented in a cloud."""

    def __init__(self, home: Path, address: str, *, stop: threading.Event) -> None:
        self._home = home
        self._address = address
        self._stop = stop
        self._secrets = Secrets(home)
        self._rented: dict[UUID, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the agents of the cast's machines, but for the one that runs work for real."""
        is_real = not why_not()
        for machine in (each for _, each in EVERY_MACHINE if not (is_real and each is WORKBENCH)):
            token = self._secrets.get(machine.slug, "host")
            self._run(machine.slug, token, parse_models(machine.models), self._stop)

    def follow_rented(self) -> None:
        """Start agents on machines that were rented meanwhile, and end those given back."""
        up = {row.instance_id: row for row in machines_up()}
        for instance_id, row in up.items():
            if instance_id not in self._rented:
                stop = self._rented[instance_id] = threading.Event()
                models = [_model_named(row.gpu_model)] * row.gpus
                self._run(f"rented-{instance_id}", token_of(instance_id), models, stop)
        for instance_id in set(self._rented) - set(up):
            self._rented.pop(instance_id).set()

    def join(self) -> None:
        """Wait until every agent has ended."""
        for stop in self._rented.values():
            stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, name: str, token: str, models: Sequence[str], stop: threading.Event) -> None:
        clock = SystemClock()
        folder = self._home / "demo" / "agents" / name
        folder.mkdir(parents=True, exist_ok=True)
        # Kept, so that pretended work goes on when the demo is started again.
        runtime = SimulatedRuntime(clock=clock, kept_in=folder / "works.json")
        agent = Agent(
            AgentConfig(state_dir=folder, hostname=name),
            gpus=SimulatedGpus(
                models,
                clock=clock,
                holders=runtime.holders,
                seed=name,
                kept_in=folder,
            ),
            runtime=runtime,
            uplink=HttpUplink(self._address, token),
            clock=clock,
        )

        def live() -> None:
            try:
                agent.run(stop)
            finally:
                agent.close()

        thread = threading.Thread(target=live, name=f"agent-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)
        log.info("demo.agent", host=name, gpus=len(models))


def _model_named(text: str) -> str:
    """Return the simulator's key of a model that a cloud calls by its own name."""
    plain = text.upper().replace(" ", "")
    for key in sorted(MODELS, key=len, reverse=True):
        if key in plain:
            return key
    return "A10"
