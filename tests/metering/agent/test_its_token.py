"""The agent gets its token by a code, keeps it to itself, and puts a new one in its place."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import pytest

from metering.agent import rotation
from metering.agent.__main__ import main
from metering.agent.credential import Enrolled, TokenFile, write_private
from metering.agent.enrolling import uplink_of
from metering.agent.rotation import UNDER_WAY, is_due, rotate, rotating
from metering.agent.strict import Message, dump, parse
from metering.agent.uplink import ENROL, Refused
from metering.agent.wire_of_tokens import (
    ENROLMENT_PATH,
    TOKEN_PATH,
    TOKEN_TAKEN_PATH,
    TokenAsked,
    TokenGiven,
    TokenTaken,
)
from tests.metering.agent.market import Market

ROOT = Path(__file__).resolve().parents[3]
HOST = UUID(int=7)
CODE = "K7Q4M-2XD9F"
WAIT_SECONDS = 60


class Tokens:
    """The market's side: what works now, and what each number was answered.

    hangs: a path whose next request is done and not answered until `go`. away: answers 503.
    """

    def __init__(self) -> None:
        self.url = ""
        self.working: set[str] = set()
        self.given: dict[str, str] = {}
        self.succeeds: dict[str, str] = {}
        self.used_by: str | None = None
        self.hangs: str | None = None
        self.hanging, self.go = threading.Event(), threading.Event()
        self.away = False
        self.asked: list[str] = []

    def answer(self, path: str, proof: str, body: object) -> Message | tuple[int, str]:
        scheme, _, secret = proof.partition(" ")
        if path == ENROLMENT_PATH:
            asked = TokenAsked.from_json(body)
            if scheme != "Enrolment" or secret.replace("-", "").upper() != CODE.replace("-", ""):
                return 401, "enrolment-code-unknown"
            if self.used_by not in (None, asked.nonce):
                return 409, "enrolment-code-used"
            self.used_by = asked.nonce
            return self._give(asked.nonce)
        if secret not in self.working:
            return 401, "token-no-longer-works"
        if path == TOKEN_PATH:
            asked = TokenAsked.from_json(body)
            given = self._give(asked.nonce)
            self.succeeds[given.token] = secret
            return given
        assert path == TOKEN_TAKEN_PATH
        TokenTaken.from_json(body)
        self.working.discard(self.succeeds.get(secret, ""))
        return TokenTaken()

    def _give(self, nonce: str) -> TokenGiven:
        token = self.given.setdefault(nonce, f"offp_host_{len(self.given)}")
        self.working.add(token)
        return TokenGiven(
            host_id=HOST, token=token, expires_at=datetime.now(UTC) + timedelta(days=90)
        )


@contextmanager
def serving(tokens: Tokens) -> Iterator[Tokens]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name http.server asks for
            body = parse(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            tokens.asked.append(self.path)
            status, said = 503, b"{}"
            if not tokens.away:
                found = tokens.answer(self.path, self.headers.get("Authorization", ""), body)
                if isinstance(found, Message):
                    status, said = 200, dump(found.to_json())
                else:
                    status = found[0]
                    problem = {"code": found[1], "detail": f"That is {found[1]}.", "advice": "Do."}
                    said = json.dumps(problem).encode()
            if tokens.hangs == self.path:
                tokens.hangs = None
                tokens.hanging.set()
                tokens.go.wait(WAIT_SECONDS)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)
            except OSError:
                pass  # it was killed meanwhile

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    tokens.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield tokens
    finally:
        tokens.go.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def tokens() -> Iterator[Tokens]:
    with serving(Tokens()) as served:
        yield served


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def enrol(tokens: Tokens, state: Path, code: str = CODE, *more: str) -> int:
    return main(["enrol", tokens.url, code, "--state-dir", str(state), *more])


def killed(tokens: Tokens, state: Path, *arguments: str, at: str) -> None:
    """Run the agent's command, and kill it when the market has done what it asks at that path."""
    tokens.hangs = at
    tokens.hanging.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "metering.agent", *arguments, "--state-dir", str(state)], cwd=ROOT
    )
    assert tokens.hanging.wait(WAIT_SECONDS)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(WAIT_SECONDS) == -signal.SIGKILL


def token_of(state: Path) -> str:
    return (state / "token").read_text().strip()


def test_a_code_becomes_a_token_that_only_its_owner_reads_and_nobody_sees(
    tokens: Tokens, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert enrol(tokens, state) == 0
    said = capfd.readouterr()

    assert token_of(state) in tokens.working
    assert token_of(state) not in said.out + said.err
    for name in ("token", "market.json"):
        assert stat.S_IMODE((state / name).stat().st_mode) == 0o600
    assert str(HOST) in said.out
    assert not (state / "enrolling.json").exists()


def test_a_running_agent_finds_server_and_token_without_options(
    market: Market, tokens: Tokens, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert enrol(tokens, state) == 0
    market.token = token_of(state)
    kept = Enrolled.kept_in(state)
    assert kept is not None
    Enrolled(server=market.url, token_file=kept.token_file, made_at=kept.made_at).keep(state)

    assert main(["run", "--once", "--simulate", "L4:2", "--trust-work",
                 "--state-dir", str(state)]) == 0  # fmt: skip
    assert len(market.registrations[0].gpus) == 2
    assert token_of(state) not in "".join(capfd.readouterr())


def test_the_token_may_be_kept_elsewhere(tokens: Tokens, state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "etc" / "agent.token"
    assert enrol(tokens, state, CODE, "--token-file", str(elsewhere)) == 1, "no such folder"
    assert tokens.asked == []
    elsewhere.parent.mkdir()

    assert enrol(tokens, state, CODE, "--token-file", str(elsewhere)) == 0
    assert elsewhere.read_text().strip() in tokens.working
    assert not (state / "token").exists()


@pytest.mark.parametrize(
    ("code", "used", "said"),
    [("22222-22222", None, "unknown"), (CODE, "another machine's", "used"), ("", None, "unknown")],
)
def test_a_code_that_does_not_work_is_refused_in_one_sentence(
    tokens: Tokens,
    state: Path,
    capfd: pytest.CaptureFixture[str],
    code: str,
    used: str | None,
    said: str,
) -> None:
    tokens.used_by = used
    assert enrol(tokens, state, code) == 1

    told = capfd.readouterr().err
    assert told == f"offpeak-agent enrol: That is enrolment-code-{said}. Do.\n"
    assert not (state / "token").exists()


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("http://market.example", "everybody on the way can read the token"),
        ("market.example", "must be an http or https address"),
        ("http://127.0.0.1:9", "Connection refused"),
    ],
)
def test_a_server_that_cannot_be_asked_is_named(
    state: Path, capfd: pytest.CaptureFixture[str], server: str, said: str
) -> None:
    assert main(["enrol", server, CODE, "--state-dir", str(state)]) == 1
    assert said in capfd.readouterr().err


def test_killed_before_the_answer_came_it_enrols_with_the_same_code_again(
    tokens: Tokens, state: Path
) -> None:
    killed(tokens, state, "enrol", tokens.url, CODE, at=ENROLMENT_PATH)
    assert not (state / "token").exists()

    assert enrol(tokens, state) == 0
    assert token_of(state) in tokens.working
    assert len(tokens.given) == 1


def test_enrolled_again_the_new_token_takes_the_place_of_the_old(
    tokens: Tokens, state: Path
) -> None:
    assert enrol(tokens, state) == 0
    live, first = TokenFile(state / "token"), token_of(state)
    tokens.used_by = None
    assert enrol(tokens, state) == 0

    assert live() == token_of(state) != first, "a running agent takes it up"


def test_a_token_is_rotated_and_the_old_one_is_over(
    tokens: Tokens, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    enrol(tokens, state)
    old = token_of(state)

    assert main(["rotate-token", "--state-dir", str(state)]) == 0
    assert tokens.working == {token_of(state)}
    assert token_of(state) != old
    assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600
    assert not (state / UNDER_WAY).exists()
    said = "".join(capfd.readouterr())
    assert old not in said and token_of(state) not in said


@pytest.mark.parametrize("at", [TOKEN_PATH, TOKEN_TAKEN_PATH])
def test_killed_in_a_rotation_the_agent_has_a_token_that_works_and_goes_on(
    tokens: Tokens, state: Path, at: str
) -> None:
    enrol(tokens, state)
    killed(tokens, state, "rotate-token", at=at)
    assert token_of(state) in tokens.working

    assert main(["rotate-token", "--state-dir", str(state)]) == 0
    assert tokens.working == {token_of(state)}
    assert len(tokens.given) == 2, "one token by the code, one in its place"


@pytest.mark.parametrize("write", [UNDER_WAY, "token", "market.json"])
@pytest.mark.parametrize("after", [False, True])
def test_ended_at_any_write_of_a_rotation_it_goes_on(
    tokens: Tokens, state: Path, monkeypatch: pytest.MonkeyPatch, write: str, after: bool
) -> None:
    enrol(tokens, state)
    enrolled = Enrolled.kept_in(state)
    assert enrolled is not None
    known = write_private

    def ends(path: Path, text: str) -> None:
        if path.name != write or after:
            known(path, text)
        if path.name == write:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("metering.agent.rotation.write_private", ends)
        patched.setattr("metering.agent.credential.write_private", ends)
        with pytest.raises(KeyboardInterrupt):
            rotate(enrolled, state, lambda token: uplink_of(enrolled, token))
    assert token_of(state) in tokens.working

    rotate(enrolled, state, lambda token: uplink_of(enrolled, token))
    assert tokens.working == {token_of(state)}
    assert not (state / UNDER_WAY).exists()


def test_a_host_that_was_never_enrolled_rotates_nothing(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["rotate-token", "--state-dir", str(state)]) == 1
    assert "offpeak-agent enrol URL CODE" in capfd.readouterr().err


def test_two_rotations_at_once_are_one(tokens: Tokens, state: Path) -> None:
    enrol(tokens, state)
    enrolled = Enrolled.kept_in(state)
    assert enrolled is not None
    tokens.hangs = TOKEN_PATH
    first = threading.Thread(
        target=lambda: rotate(enrolled, state, lambda token: uplink_of(enrolled, token))
    )
    first.start()
    assert tokens.hanging.wait(WAIT_SECONDS)

    with pytest.raises(BlockingIOError, match="another process"):
        rotate(enrolled, state, lambda token: uplink_of(enrolled, token))
    tokens.go.set()
    first.join(WAIT_SECONDS)
    assert tokens.working == {token_of(state)}


def test_a_running_agent_rotates_a_token_that_is_old_and_no_other(
    tokens: Tokens, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enrol(tokens, state)
    enrolled = Enrolled.kept_in(state)
    assert enrolled is not None
    now = float(enrolled.made_at)
    assert not is_due(enrolled, state, days=30, now=now + 30 * 86_400 - 1)
    assert is_due(enrolled, state, days=30, now=now + 30 * 86_400)
    assert not is_due(enrolled, state, days=0, now=now + 3_000 * 86_400)

    old = token_of(state)
    Enrolled(server=tokens.url, token_file=enrolled.token_file, made_at=1).keep(state)
    renewed = threading.Event()
    known = rotation.rotate

    def noting(*given: object) -> Enrolled:
        made = known(*given)  # type: ignore[arg-type]
        renewed.set()
        return made

    monkeypatch.setattr(rotation, "rotate", noting)
    with rotating(enrolled, state, lambda token: uplink_of(enrolled, token), days=30):
        assert renewed.wait(WAIT_SECONDS)
    assert token_of(state) != old
    kept = Enrolled.kept_in(state)
    assert kept is not None and kept.made_at >= time.time() - WAIT_SECONDS


def test_a_market_that_is_away_changes_nothing(tokens: Tokens, state: Path) -> None:
    enrol(tokens, state)
    old, tokens.away = token_of(state), True
    assert main(["rotate-token", "--state-dir", str(state)]) == 1
    assert token_of(state) == old
    tokens.away = False
    assert main(["rotate-token", "--state-dir", str(state)]) == 0
    assert tokens.working == {token_of(state)}


def test_an_agent_whose_token_was_revoked_says_what_to_do(
    tokens: Tokens, state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    enrol(tokens, state)
    tokens.working.clear()
    capfd.readouterr()

    assert main(["rotate-token", "--state-dir", str(state)]) == 1
    assert "token-no-longer-works" in capfd.readouterr().err
    assert ENROL in str(Refused(401, "{}"))
    assert main(["run", "--once", "--simulate", "L4:1", "--trust-work",
                 "--state-dir", str(state)]) != 0  # fmt: skip


def test_what_cannot_be_read_says_to_enrol_again(state: Path) -> None:
    state.mkdir()
    for said in ("", "[]", '{"server": 7, "token_file": "x"}', "\x00"):
        (state / "market.json").write_text(said)
        with pytest.raises(ValueError, match="enrol this host again"):
            Enrolled.kept_in(state)


def test_a_token_file_that_goes_away_or_is_emptied_leaves_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    assert token() == "one"
    path.write_text("")
    assert token() == "one"
    path.unlink()
    assert token() == "one"
    write_private(path, "two\n")
    assert token() == "two"
    with pytest.raises(FileNotFoundError):
        TokenFile(tmp_path / "nowhere")
