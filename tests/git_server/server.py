"""Repositories behind `git http-backend`, and repositories that no git would make.

What is pushed to a server need not have been made by git: so trees are written here as bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = "100644", "100755", "120000", "40000", "160000"
Entry = tuple[str, str, str]
"""Mode, name, and the id of what it is."""
NOBODY = {
    "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.test",
    "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.test",
    "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}  # fmt: skip


def here() -> bool:
    """Tell if this machine has git and its server."""
    return shutil.which("git") is not None and _backend().exists()


def _backend() -> Path:
    at = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    return Path(at.stdout.strip(), "git-http-backend")


class Repository:
    """A bare repository that is written object by object."""

    def __init__(self, at: Path) -> None:
        self.at = at
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(at)], check=True)

    def git(self, *words: str, given: bytes = b"") -> str:
        """Run git on it; return what it printed."""
        env = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.at), **NOBODY}
        done = subprocess.run(
            ["git", *words], input=given, env=env, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def blob(self, data: bytes) -> str:
        """Write a file's content; return its id."""
        return self.git("hash-object", "-w", "--stdin", given=data)

    def tree(self, *entries: Entry) -> str:
        """Write a folder as it is told, however wrong; return its id."""
        body = b"".join(
            f"{mode} {name}\0".encode() + bytes.fromhex(sha) for mode, name, sha in entries
        )
        return self.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=body)

    def commit(self, tree: str, branch: str = "main") -> str:
        """Commit a folder; return the id."""
        made = self.git("commit-tree", "-m", "As it is", tree)
        self.git("update-ref", f"refs/heads/{branch}", made)
        return made

    def of_files(self, **files: bytes) -> str:
        """Commit a folder of these files; return the id."""
        return self.commit(
            self.tree(*((FILE, name, self.blob(data)) for name, data in sorted(files.items())))
        )


def answer(
    root: Path, command: str, path: str, headers: Message[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return how git's own server answers for the repositories below a folder."""
    parts = urlsplit(path)
    env = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": command,
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "CONTENT_TYPE": headers.get("Content-Type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("Content-Encoding", ""),
        "GIT_PROTOCOL": headers.get("Git-Protocol", ""),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    done = subprocess.run([str(_backend())], input=body, env=env, capture_output=True, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    said = [line.partition(": ")[::2] for line in head.decode().split("\r\n") if line]
    status = next((value for name, value in said if name == "Status"), "200 OK")
    return int(status.split()[0]), [each for each in said if each[0] != "Status"], content


@contextmanager
def serving(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve the repositories below a folder; give the address, and what was asked, as it comes."""
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            asked.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = answer(root, self.command, self.path, self.headers, body)
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_any  # noqa: N815  # the base class calls them

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
