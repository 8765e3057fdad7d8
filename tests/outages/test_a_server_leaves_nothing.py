"""The PostgreSQL that a test has for itself leaves nothing on this machine, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.outages import server
from tests.outages.server import Server


def test_a_server_that_cannot_start_leaves_neither_folder_nor_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(home: Path) -> str:
        raise RuntimeError("no room")

    monkeypatch.setattr(server, "ensure_running", fails)
    home = tmp_path / "server"

    with pytest.raises(RuntimeError, match="no room"):
        Server(home, mib_max=1)

    assert not home.exists()
    assert str(home) not in Path("/proc/mounts").read_text()
