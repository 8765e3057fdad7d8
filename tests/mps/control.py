"""A double of `nvidia-cuda-mps-control`: the documented commands, sockets, rights and accounts.

From NVIDIA's "Multi-Process Service" (R580), and what is in the pipe directory of a daemon of root:
`control` open to all, `control_privileged` to its user alone, `log`, `control_lock` and the file
with its process id open to all. As a daemon (`-f`) it keeps limits, starts servers for its clients,
one account at a time without `-multiuser-server`, and answers a client what holds for it:
the server's limits as of when the client came, or its own lower ones. Without options it reads
commands and asks the daemon.

What it does otherwise than it should is in `faults.json` beside it: `old` (knows no
`-multiuser-server`), `open` (everybody may set limits), `deaf` (sets no limit), `slow`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[0]).resolve().parent
PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
FAULTS = json.loads((HERE / "faults.json").read_text()) if (HERE / "faults.json").exists() else []
NO_DAEMON = "Cannot find MPS control daemon process"


def listening(name: str, mode: int) -> socket.socket:
    path = PIPE / name
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    path.chmod(mode)
    server.listen(64)
    return server


class Daemon:
    def __init__(self, multiuser: bool) -> None:
        self.multiuser = multiuser
        self.percent = "100.0"
        self.memory: dict[str, int] = {}
        self.servers: dict[int, dict[str, Any]] = {}
        self.clients: dict[socket.socket, tuple[int, int]] = {}
        self.pending: list[tuple[socket.socket, tuple[int, int, int], dict[str, str]]] = []
        self.ends = False

    def run(self) -> None:
        PIPE.mkdir(exist_ok=True)
        LOGS.mkdir(exist_ok=True)
        if "slow" in FAULTS:
            time.sleep(1)
        os.mkfifo(PIPE / "log")
        for name, mode in (("log", 0o777), ("control_lock", 0o666)):
            (PIPE / name).touch()
            (PIPE / name).chmod(mode)
        (PIPE / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        (PIPE / "nvidia-cuda-mps-control.pid").chmod(0o666)
        control = listening("control", 0o666)
        privileged = listening("control_privileged", 0o777 if "open" in FAULTS else 0o755)
        selector = selectors.DefaultSelector()
        for each in (control, privileged):
            selector.register(each, selectors.EVENT_READ)
        while not self.ends:
            for key, _ in selector.select():
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if one in (control, privileged):
                    peer, _ = one.accept()
                    if one is privileged:
                        self.obey(peer)
                    else:
                        selector.register(peer, selectors.EVENT_READ)
                    continue
                said = one.recv(65536)
                if said:
                    creds = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                    pid, uid, gid = struct.unpack("3i", creds)
                    self.pending.append((one, (pid, uid, gid), json.loads(said)))
                else:
                    selector.unregister(one)
                    one.close()
                    self.clients.pop(one, None)
                    self.pending = [each for each in self.pending if each[0] is not one]
                self.serve()

    def serve(self) -> None:
        """Give servers to the clients that wait, as far as their accounts may have one."""
        for one, (pid, uid, _), said in list(self.pending):
            uid = 0 if self.multiuser else uid
            others = [each for each, server in self.servers.items() if server["uid"] != uid]
            if others and any(server in others for server, _ in self.clients.values()):
                with (LOGS / "control.log").open("a") as log:
                    log.write(f"NEW CLIENT {pid} from user {uid}: push client to pending list\n")
                continue  # until all clients of the other account are gone
            for other in others:
                self.stop(other)
            number = next(iter(self.servers), None) or self.start(uid)
            server = self.servers[number]
            percent = min(float(server["percent"]), float(said.get("percent") or 100))
            memory = server["memory"].get(os.environ.get("CUDA_VISIBLE_DEVICES", ""), 0)
            asked = int(said.get("memory") or 0)
            memory = min(filter(None, (memory, asked)), default=0)
            self.clients[one] = number, pid
            self.pending = [each for each in self.pending if each[0] is not one]
            one.send(json.dumps({"percent": percent, "memory_mib": memory}).encode())

    def start(self, uid: int) -> int:
        process = subprocess.Popen(
            [str(HERE / "nvidia-cuda-mps-server")], user=uid, stdin=subprocess.DEVNULL
        )
        self.servers[process.pid] = {
            "uid": uid, "percent": self.percent, "memory": dict(self.memory), "process": process,
        }  # fmt: skip
        return process.pid

    def stop(self, number: int) -> None:
        process = self.servers.pop(number)["process"]
        process.kill()
        process.wait()

    def obey(self, peer: socket.socket) -> None:
        try:
            answer = {"said": self.answer(peer.recv(65536).decode().split())}
        except (ValueError, KeyError, IndexError) as error:
            answer = {"failed": f"invalid command or argument: {error}"}
        peer.send(json.dumps(answer).encode())
        peer.close()

    def answer(self, words: list[str]) -> str:
        match words:
            case ["get_server_list"]:
                return "\n".join(map(str, self.servers))
            case ["get_client_list", server]:
                return "\n".join(str(p) for s, p in self.clients.values() if s == int(server))
            case ["set_default_active_thread_percentage", percent]:
                self.percent = self.percents(percent)
            case ["get_default_active_thread_percentage"]:
                return self.percent
            case ["set_active_thread_percentage", server, percent]:
                self.servers[int(server)]["percent"] = self.percents(percent)
            case ["get_active_thread_percentage", server]:
                return str(self.servers[int(server)]["percent"])
            case ["set_default_device_pinned_mem_limit", device, value]:
                self.remember(self.memory, device, value)
            case ["get_default_device_pinned_mem_limit", device]:
                return self.said(self.memory, device)
            case ["set_device_pinned_mem_limit", server, device, value]:
                self.remember(self.servers[int(server)]["memory"], device, value)
            case ["get_device_pinned_mem_limit", server, device]:
                return self.said(self.servers[int(server)]["memory"], device)
            case ["quit"]:
                for number in list(self.servers):
                    self.stop(number)
                self.ends = True
            case _:
                raise ValueError(" ".join(words))
        return ""

    def percents(self, text: str) -> str:
        if not 0 < float(text) <= 100:
            raise ValueError(text)
        return str(float(text))

    def remember(self, memory: dict[str, int], device: str, value: str) -> None:
        number, unit = int(value[:-1]), {"M": 1, "G": 1024}[value[-1]]
        if "deaf" not in FAULTS:
            memory[device] = number * unit

    def said(self, memory: dict[str, int], device: str) -> str:
        return f"{memory[device]}M" if device in memory else ""


def ask(line: str) -> int:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        one.connect(str(PIPE / "control_privileged"))
    except OSError:
        print(NO_DAEMON)
        return 1
    one.send(line.encode())
    answer = json.loads(one.recv(65536))
    if "failed" in answer:
        print(answer["failed"])
        return 1
    if answer["said"]:
        print(answer["said"])
    return 0


def main() -> int:
    options = sys.argv[1:]
    if not options:
        return max([ask(line.strip()) for line in sys.stdin if line.strip()] or [0])
    known = ("-f", "-d") if "old" in FAULTS else ("-f", "-d", "-multiuser-server", "-M")
    if not {*options} <= {*known}:
        print(f"Invalid option: {' '.join(options)}", file=sys.stderr)
        return 1
    if "-d" in options and os.fork():
        return 0
    multiuser = "-multiuser-server" in options or "-M" in options
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Daemon(multiuser).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
