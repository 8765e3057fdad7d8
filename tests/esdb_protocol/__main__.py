"""Run the protocol server alone and print its address."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.esdb_protocol.server import serve


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.esdb_protocol", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port of 127.0.0.1")
    parser.add_argument("--journal", type=Path, help="file to keep the events in between runs")
    arguments = parser.parse_args()
    serving = serve(arguments.port, arguments.journal)
    print(f"esdb://127.0.0.1:{serving.port}?Tls=false", flush=True)
    serving.server.wait_for_termination()


if __name__ == "__main__":
    main()
