from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from config.wiring import build_storage
from marketplace import storage
from marketplace.storage.folder import FolderStorage
from tests.access.conftest import Caller
from tests.marketplace.files.conftest import Upload, manifest_of, name_of
from tests.marketplace.support.over_http import read


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[FolderStorage]:
    ours = FolderStorage(tmp_path / "blobs")
    storage.install(lambda: ours)
    yield ours
    storage.install(lambda: build_storage(settings.ENV, settings.HOME))


@dataclass
class Keeping:
    """A person who keeps a volume, step by step, as a client does it."""

    caller: Caller
    kept: FolderStorage
    unit: str

    def create(self, name: str = "data", **more: Any) -> Any:
        said = {"name": name, "size_gib": 1, "subscriber_id": self.unit, **more}
        done = self.caller.post("/api/v1/volumes", said)
        read()
        return done

    def shown(self, name: str = "data") -> Any:
        return self.caller.get(f"/api/v1/volumes/{name}").json()

    def bring(self, base: int, name: str = "data", **files: bytes) -> Any:
        """Send a version with these files, and name it."""
        manifest = manifest_of(**files)
        blobs = [manifest, *files.values()]
        asked = {"blobs": {name_of(data): len(data) for data in blobs}}
        answer = self.caller.post(f"/api/v1/volumes/{name}/missing", asked)
        assert answer.status_code == 200, answer.content
        links = answer.json()["links"]
        Upload(self.caller, self.kept).send(answer, *(b for b in blobs if name_of(b) in links))
        said = {"manifest": name_of(manifest), "base": base}
        done = self.caller.post(f"/api/v1/volumes/{name}/versions", said)
        read()
        return done
