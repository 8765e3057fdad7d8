"""`offpeak-agent` as an operator meets it: alone, on a host with nothing of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metering.agent.__main__ import main
from metering.agent.uplink import HttpUplink, Refused, Unreachable
from tests.metering.agent.market import TOKEN, Market, assignment
from tests.metering.agent.works import confinement

AGENT = Path(__file__).resolve().parents[3] / "metering" / "agent"


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the agent under its own name, without site-packages."""
    place = tmp_path / "place"
    place.mkdir(exist_ok=True)
    if not (place / "offpeak_agent").exists():
        (place / "offpeak_agent").symlink_to(AGENT)
    return subprocess.run(
        [sys.executable, "-S", "-m", "offpeak_agent", *arguments],
        cwd=place,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_runs_with_the_standard_library_alone(tmp_path: Path, market: Market) -> None:
    done = run(
        tmp_path, "run", "--once", "--simulate", "H100:8", "--trust-work", "--server", market.url,
        "--state-dir", str(tmp_path / "state"), OFFPEAK_AGENT_TOKEN=TOKEN,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert len(market.registrations[0].gpus) == 8


def test_without_the_package_it_says_what_to_install(tmp_path: Path, market: Market) -> None:
    state_dir = str(tmp_path / "state")
    done = run(tmp_path, "doctor", "--state-dir", state_dir, "--server", market.url)

    assert done.returncode == 1
    assert "pip install nvidia-ml-py" in done.stdout


def test_no_module_of_the_agent_knows_the_server() -> None:
    code = (
        "import pkgutil, importlib, sys\n"
        "import metering.agent as agent\n"
        "for found in pkgutil.walk_packages(agent.__path__, 'metering.agent.'):\n"
        "    importlib.import_module(found.name)\n"
        "known = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not known & {'django', 'rest_framework', 'ledger', 'listings', 'marketplace'}\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=AGENT.parents[1], check=True)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused as root")
RUN = ["run", "--once", "--token-file", "{token}", "--state-dir", "{state}"]


def refusal(
    tmp_path: Path, market: Market, capsys: pytest.CaptureFixture[str], *options: str
) -> str:
    """Return what the agent says as it refuses to run."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    given = [each.format(token=token, state=tmp_path / "state") for each in RUN]
    with pytest.raises(SystemExit) as ends:
        main([*given, "--server", market.url, *options])
    assert ends.value.code == 2
    assert market.requests == []
    return " ".join(capsys.readouterr().err.split())


@ROOT_ONLY
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "leased work would be root too"),
        (["--simulate", "L4:1"], "leased work would be root too"),
        (["--trust-work"], "--trust-work goes with --simulate only"),
        (["--work-user", "root"], "leased work never runs as"),
        (["--work-users", "0-9"], "1000 or more"),
        (["--work-users", "300010-300000"], "1000 or more"),
        (["--work-users", "300000-310000"], "more than 4096"),
        (["--work-users", "65530-65540"], "account of nobody"),
        (["--work-users", "nobody-here"], "no account 'nobody-here'"),
        (["--work-users", "300000-300001-2"], "is no range"),
        (["--work-users", "300000,300000"], "named twice"),
        (["--work-users", " , "], "no account is named"),
        (["--work-users", "300000", "--work-user", "nobody"], "either"),
    ],
)
def test_root_runs_no_leased_work_as_root(
    tmp_path: Path,
    market: Market,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    reason: str,
) -> None:
    assert reason in refusal(tmp_path, market, capsys, *options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--simulate", "T4:2"], "H100"),
        (["--simulate", "H100:x"], "--simulate"),
        (["--work-processes", "0"], "a whole number above 0, not '0'"),
        (["--work-memory-gib", "1e3"], "a whole number above 0, not '1e3'"),
        (["--work-reads", "models"], "an existing folder from the root on, not 'models'"),
    ],
)
def test_a_wrong_option_says_what_would_be_right(
    tmp_path: Path,
    market: Market,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    reason: str,
) -> None:
    said = refusal(tmp_path, market, capsys, *options)

    assert reason in said and "invalid" not in said


@ROOT_ONLY
def test_the_doctor_says_as_whom_work_runs(
    tmp_path: Path, market: Market, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--server", market.url, "--state-dir", str(tmp_path), "--simulate", "L4:2"]
    assert main(["doctor", *options]) == 1
    assert "FAIL leased work runs: not at all -> as root, leased work would" in (
        capsys.readouterr().out
    )

    main(["doctor", *options, "--work-users", "450000-450003", "--confine", "off"])

    found = capsys.readouterr().out
    assert "ok   leased work runs: as an account of its own for each lease, 4 in all" in found
    assert "lets nobody through" in found
    assert "?    tenants: one at a time on this host" in found


@ROOT_ONLY
def test_it_does_not_start_where_accounts_of_work_cannot_reach_their_folders(
    tmp_path: Path,
    market: Market,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confinement(None)  # or skips
    (tmp_path / "closed").mkdir(mode=0o700)
    options = ["--server", market.url, "--state-dir", str(tmp_path / "closed" / "state")]
    monkeypatch.setenv("OFFPEAK_AGENT_TOKEN", TOKEN)

    assert main(["run", *options, "--simulate", "L4:2", "--work-users", "450000-450003"]) == 1

    assert "lets no account of leased work through: chmod o+x" in capsys.readouterr().err


def test_the_doctor_shows_what_the_market_refused_for_good(
    tmp_path: Path, market: Market, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "refused.jsonl").write_text("{}\n{}\n")

    main(["doctor", "--server", market.url, "--state-dir", str(tmp_path), "--simulate", "L4:2"])

    assert "FAIL messages that the market took: all but 2" in capsys.readouterr().out


def test_the_doctor_finds_a_healthy_host_healthy(
    tmp_path: Path, market: Market, capsys: pytest.CaptureFixture[str]
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{TOKEN}\n")
    token_file.chmod(0o644)
    options = ["--server", market.url, "--state-dir", str(tmp_path), "--simulate", "L4:2"]
    doctor = ["doctor", *options, "--token-file", str(token_file)]
    assert main(doctor) == 1
    assert "chmod 600" in capsys.readouterr().out

    token_file.chmod(0o600)
    main(doctor)

    found = capsys.readouterr().out
    assert "ok   NVML: 2 leasable GPUs" in found
    assert "ok   server: answers" in found
    assert "ok   clock" in found
    assert "chmod" not in found


def test_the_doctor_says_what_is_wrong_with_the_server(
    tmp_path: Path,
    market: Market,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ["--server", market.url, "--state-dir", str(tmp_path), "--simulate", "L4:2"]
    monkeypatch.setenv("OFFPEAK_AGENT_TOKEN", "wrong")

    assert main(["doctor", *options]) == 1

    assert "FAIL server: the server answered 401" in capsys.readouterr().out
    assert "OFFPEAK_AGENT_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("server", "token", "reason"),
    [
        ("ftp://127.0.0.1", TOKEN, "http or https"),
        ("http://market.example", TOKEN, "plain http"),
        ("https://market.example", "", "token"),
        ("https://market.example", "two\nlines", "token"),
    ],
)
def test_an_unsafe_way_to_the_server_is_refused(server: str, token: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        HttpUplink(server, token)


def test_refusals_and_failures_are_told_apart(market: Market) -> None:
    with pytest.raises(Refused) as refused:
        HttpUplink(market.url, "wrong").assignments()
    assert refused.value.status == 401 and refused.value.is_about_us
    market.away = True
    with pytest.raises(Unreachable, match="503"):
        HttpUplink(market.url, TOKEN).assignments()
    with pytest.raises(Unreachable):
        HttpUplink("http://127.0.0.1:9", TOKEN, answer_seconds_max=1).assignments()


def test_what_is_assigned_arrives_as_it_was_meant(market: Market) -> None:
    wanted = assignment("GPU-a", now_ms=1_767_614_400_250, environment={"A": "ü"}, stop_in=1.5)
    market.assign(wanted)

    answer = HttpUplink(market.url, TOKEN).assignments()

    assert answer.assignments == (wanted,)
