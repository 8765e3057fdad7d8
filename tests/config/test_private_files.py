"""Nobody else of the machine reads what the market keeps, and its logs have an end."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from config.database.private import close, keep_private, open_entries, private_folder
from config.logs.files import Lines, LogFile
from ledger.domain.redaction import redact

ROOT = Path(__file__).resolve().parents[2]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_older_data_directory_is_closed_by_whichever_command_comes_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "logs", home / "demo" / "agents"):
        folder.mkdir(parents=True, mode=0o755)
    for name in ("secret_key", "logs/web.log", "demo/tokens.json", "logs/web.log.1"):
        (home / name).write_text("k" * 50)
        (home / name).chmod(0o644)
    (home / "letters").write_text("the operator's own")
    (home / "letters").chmod(0o644)

    subprocess.run(
        [sys.executable, "-c", "import config.settings as s; open(s.HOME / 'new', 'w').close()"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "OFFPEAK_HOME": str(home)},
        check=True,
        timeout=60,
    )

    assert {mode_of(home), mode_of(home / "logs"), mode_of(home / "demo" / "agents")} == {0o700}
    assert {mode_of(each) for each in home.rglob("*.log*")} == {0o600}
    assert mode_of(home / "secret_key") == mode_of(home / "new") == 0o600
    assert mode_of(home / "letters") == 0o644


def test_a_folder_that_all_share_is_left_alone_and_told_of(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)

    close(shared)

    assert mode_of(shared) == 0o1777
    assert open_entries(shared) == [shared]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a server as another user")
@pytest.mark.parametrize(("before", "after"), [(0o711, 0o711), (0o755, 0o711), (0o775, 0o711)])
@pytest.mark.parametrize("name", ["var", "demo", "logs"])
def test_the_way_to_the_server_of_a_market_inside_stays_open(
    tmp_path: Path, name: str, before: int, after: int
) -> None:
    """Also where the data directory goes by a name that things inside one have."""
    outer = tmp_path / name
    (outer / "test" / "postgres").mkdir(parents=True)
    (outer / "logs").mkdir(mode=0o755)
    outer.chmod(before)

    before_mask = os.umask(0o022)
    keep_private(outer)
    os.umask(before_mask)

    assert mode_of(outer) == after
    assert mode_of(outer / "logs") == 0o700
    assert open_entries(outer) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs a server as another user")
def test_a_way_that_was_left_open_for_a_server_that_is_not_there_yet_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)

    close(tmp_path)

    assert mode_of(tmp_path) == 0o711
    assert open_entries(tmp_path) == []


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    home, elsewhere = private_folder(tmp_path / "home"), tmp_path / "elsewhere"
    elsewhere.write_text("")
    elsewhere.chmod(0o644)
    (home / "secret_key").symlink_to(elsewhere)

    close(home / "secret_key")

    assert mode_of(elsewhere) == 0o644


def test_a_log_starts_anew_when_it_is_full_and_only_the_last_few_are_kept(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "web.log", bytes_max=100, kept=2)

    for number in range(200):
        log.write(b"%08d\n" % number)
    log.close()

    kept = sorted(tmp_path.iterdir())
    assert [each.name for each in kept] == ["web.log", "web.log.1", "web.log.2"]
    assert all(each.stat().st_size <= 100 and mode_of(each) == 0o600 for each in kept)
    lines = b"".join(each.read_bytes() for each in reversed(kept)).split()
    assert lines == [b"%08d" % number for number in range(200 - len(lines), 200)]


def test_a_log_that_was_open_and_large_is_closed_and_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_bytes(b"x" * 500)
    path.chmod(0o644)

    log = LogFile(path, bytes_max=100)
    log.write(b"new\n")
    log.close()

    assert path.read_bytes() == b"new\n"
    assert mode_of(path) == mode_of(tmp_path / "web.log.1") == 0o600


def test_a_log_that_cannot_be_written_ends_nobody(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "no such folder" / "web.log")

    log.write(b"lost\n")
    (tmp_path / "no such folder").mkdir()
    log.write(b"kept\n")
    log.close()

    assert (tmp_path / "no such folder" / "web.log").read_bytes() == b"kept\n"


@pytest.mark.parametrize("ending", [b"\n", b""])
@pytest.mark.parametrize("pieces", [7, 65_536, 10**6])
def test_what_a_process_says_by_itself_is_redacted_and_a_long_line_cut(
    tmp_path: Path, ending: bytes, pieces: int
) -> None:
    log = LogFile(tmp_path / "web.log")
    said = b"postgresql://u:geheim@h/x\n" + b"y" * 200_000 + b" password=geheim\nlast" + ending

    lines, arriving = Lines(log, redact), io.BytesIO(said)
    while part := arriving.read(pieces):
        lines.add(part)
    lines.close()

    first, second, last = (tmp_path / "web.log").read_text().splitlines()
    assert first == "postgresql://u:[hidden]@h/x"
    assert set(second) == {"y"} and len(second) < 65_000
    assert last == "last"
