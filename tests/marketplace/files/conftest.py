from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from config.wiring import build_storage
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from marketplace import storage
from marketplace.projections import folders
from marketplace.storage.folder import FolderStorage
from marketplace.storage.tickets import ticket_of
from tests.access.conftest import Caller, admit


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[FolderStorage]:
    """A storage of this test's own, where the site looks for one."""
    ours = FolderStorage(tmp_path / "blobs")
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


@pytest.fixture
def bob(db: None) -> Caller:
    return admit("bob-works", "consumer")


def name_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read() -> None:
    while follow_projections(PostgresStore(), folders.PROJECTIONS):
        pass


@dataclass
class Upload:
    """What one person brings, step by step, as a client does it."""

    caller: Caller
    kept: FolderStorage

    def missing(self, *blobs: bytes) -> Any:
        asked = {name_of(data): len(data) for data in blobs}
        return self.caller.post("/api/v1/folders/missing", {"blobs": asked})

    def send(self, answer: Any, *blobs: bytes) -> None:
        """Take a blob in as the web process does."""
        for data in blobs:
            link = answer.json()["links"][name_of(data)]
            token = link["url"].rpartition("/")[2]
            ticket = ticket_of(token, "put")
            receiving = self.kept.receive(ticket.key, ticket.size)
            receiving.write(data)
            receiving.finish()
            receiving.end()

    def bring(self, *blobs: bytes) -> None:
        answer = self.missing(*blobs)
        assert answer.status_code == 200, answer.content
        self.send(answer, *(data for data in blobs if name_of(data) in answer.json()["links"]))

    def keep(self, manifest: bytes, **more: Any) -> Any:
        return self.caller.post("/api/v1/folders", {"manifest": name_of(manifest), **more})

    def folder(self, **files: bytes) -> str:
        """Bring a folder with these files; return its id."""
        manifest = manifest_of(**files)
        self.bring(manifest, *files.values())
        done = self.keep(manifest)
        assert done.status_code == 201, done.content
        read()
        return str(done.json()["id"])


def manifest_of(**files: bytes) -> bytes:
    blobs = list(dict.fromkeys(files.values()))
    said = {
        "format": "offpeak-folder-1",
        "blobs": [[name_of(data), len(data)] for data in blobs],
        "files": [
            {"path": name, "parts": [[blobs.index(data), 0, len(data)]]}
            for name, data in files.items()
        ],
    }
    return json.dumps(said).encode()
