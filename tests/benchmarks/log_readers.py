"""`python -m tests.benchmarks.log_readers PORT TOKEN SECONDS LEASE…`: read logs, tell how late.

In a process of its own, so that what is measured is not who reads. Each line of a log is the time,
in nanoseconds, at which it was printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

late_ms: list[float] = []


async def read(port: int, token: str, lease: str) -> None:
    """Follow one log."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /api/v1/leases/{lease}/logs/stdout HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    async for line in reader:
        if line.startswith(b'data: "'):
            now = time.time_ns()
            late_ms.extend((now - int(each)) / 1e6 for each in json.loads(line[6:]).split())


async def main() -> None:
    """Follow all of them for a while."""
    port, token, seconds, *leases = sys.argv[1:]
    readers = [asyncio.create_task(read(int(port), token, lease)) for lease in leases]
    await asyncio.sleep(float(seconds))
    for each in readers:
        each.cancel()
    print(json.dumps(sorted(late_ms)))


if __name__ == "__main__":
    asyncio.run(main())
