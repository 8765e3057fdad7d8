"""`python -m tests.benchmarks.log_readers PORT TOKEN SECONDS LEASE…`: read logs, tell how late.

And how late this machine wakes whoever sleeps, than which nothing here can be better. In a process
of its own, so that what is measured is not who reads. Each line of a log is the time, in
nanoseconds, at which it was printed; `-` is not counted. Prints `ready` when all logs are followed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

SLEEP_SECONDS = 0.01
late_ms: list[float] = []
slept_ms: list[float] = []
waiting = set[str]()


async def read(port: int, token: str, lease: str) -> None:
    """Follow one log."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /api/v1/leases/{lease}/logs/stdout HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    while (await reader.readline()).strip():  # the head: it follows from here on
        pass
    waiting.discard(lease)
    if not waiting:
        print("ready", flush=True)
    async for line in reader:
        if line.startswith(b'data: "'):
            now = time.time_ns()
            lines = json.loads(line[6:]).split()
            late_ms.extend((now - int(each)) / 1e6 for each in lines if each != "-")


def sleep_on() -> None:
    """Note how much later than asked a sleep ends, again and again."""
    while True:
        began = time.monotonic()
        time.sleep(SLEEP_SECONDS)
        slept_ms.append((time.monotonic() - began - SLEEP_SECONDS) * 1000)


async def main() -> None:
    """Follow all of them for a while."""
    port, token, seconds, *leases = sys.argv[1:]
    threading.Thread(target=sleep_on, daemon=True).start()
    waiting.update(leases)
    readers = [asyncio.create_task(read(int(port), token, lease)) for lease in leases]
    while waiting:
        await asyncio.sleep(SLEEP_SECONDS)
    await asyncio.sleep(float(seconds))
    for each in readers:
        each.cancel()
    print(json.dumps([sorted(late_ms), sorted(slept_ms)]))


if __name__ == "__main__":
    asyncio.run(main())
