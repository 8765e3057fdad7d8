"""Whatever fails, no log, error kept or page about a failure holds a secret."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.env import read_env, secrets_of
from config.logs.lines import LINES_PER_MINUTE, Pace, Redaction, told
from ledger.domain import tokens
from ledger.domain.redaction import HIDDEN, redact, spellings

ROOT = Path(__file__).resolve().parents[2]
TOKEN = tokens.write("user", bytes(range(32)))
PASSWORD = "Tr0ub4dor-horse"

QUOTED = [
    f"postgresql://u:{PASSWORD}@127.0.0.1:1/x",
    f"postgresql://u:{PASSWORD}@a,b:5432/x?sslpassword={PASSWORD}&application_name=x",
    f"redis://:{PASSWORD}@h:6379/0",
    f"esdb+discover://admin:{PASSWORD}@h:2113?tls=false",
    f'invalid connection option "host=a password={PASSWORD} dbname=b"',
    f"host=a password='it''s {PASSWORD}' dbname=b",
    f"host=a passfile=x password = {PASSWORD},x user=u",
    f"ALTER USER x PASSWORD '{PASSWORD}'",
    f"Authorization: Bearer {PASSWORD}",
    f"authorization: Basic {PASSWORD}==",
    f"{{'HTTP_AUTHORIZATION': 'Token {PASSWORD}'}}",
    f"[(b'authorization', b'Bearer {PASSWORD}'), (b'host', b'x')]",
    f"Cookie: theme=dark; sessionid={PASSWORD}; csrftoken={PASSWORD}",
    f"sessionid={PASSWORD}",
    f"<QueryDict: {{'login': ['a@b.c'], 'password': '{PASSWORD}'}}>",
    f"<QueryDict: {{'login': ['a@b.c'], 'password': ['{PASSWORD}', '{PASSWORD}'], 'x': ['1']}}>",
    f"{{'body': {{'password': {{'value': '{PASSWORD}'}}}}}}",
    f"password=(b'{PASSWORD}',)",
    f"login=a%40b.c&password={PASSWORD}&next=/",
    f"next=%2Flogin%3Fpassword%3D{PASSWORD}%26x%3D1",
    f"next=%252Flogin%253Ftoken%253D{PASSWORD}",
    f"%7B%22password%22%3A%22{PASSWORD}%22%7D",
    f"<td>&#x27;password&#x27;: &#x27;{PASSWORD}&#x27;, &#x27;x&#x27;: 1</td>",
    f"&quot;client_secret&quot;: &quot;{PASSWORD}&quot;",
    f"postgresql://me@corp.example:{PASSWORD}@h/x",
    "github_pat_11ABCDEFG0Tr0ub4dorTr0ub4dor",
    "hf_Tr0ub4dorTr0ub4dorTr0ub4dor",
    json.dumps({"client_secret": PASSWORD, "port": 1}),
    json.dumps({"body": json.dumps({"password": PASSWORD})}),
    f"OFFPEAK_SECRET_KEY={PASSWORD} AWS_SECRET_ACCESS_KEY={PASSWORD}",
    f"bad token {TOKEN} sent",
    f"/accounts/x?token={TOKEN}",
    f"KeyError: '{TOKEN}'",
    TOKEN[:-9],
    "sk_" + "live_51HxTr0ub4dor-horse and whsec_Tr0ub4dor-horse",
    "eyJhbGciOiJIUzI1NiJ9.Tr0ub4dor-horse.Tr0ub4dor-horse",
    f"-----BEGIN PRIVATE KEY-----\n{PASSWORD}\n-----END PRIVATE KEY-----",
]
PLAIN = [
    "connection to server at 127.0.0.1, port 1 failed: Connection refused",
    "That token was revoked: make a new one",
    "token_id=0b0e, 3 tokens, prefix offp_user_ABCDEF",
    "http://127.0.0.1:8000/ is up at 10:00:00",
    "bid 12 at USD 1.50: leased 2 of 2",
    "http://127.0.0.1:8000/bids?next=%2Fleases%3Fstate%3Dactive mailto:a@b.c",
]


@pytest.mark.parametrize("text", QUOTED)
def test_a_secret_is_hidden_however_it_is_quoted(text: str) -> None:
    clean = redact(text)

    assert "Tr0ub4dor" not in clean
    assert TOKEN[18:30] not in clean
    assert HIDDEN in clean
    assert redact(clean) == clean


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert redact(text) == text


@given(st.text(max_size=40), st.text(max_size=40), st.binary(min_size=32, max_size=32))
def test_a_token_is_hidden_wherever_it_stands(before: str, after: str, entropy: bytes) -> None:
    token = tokens.write("host", entropy)

    assert token[17:42] not in redact(f"{before}{token}{after}")


def test_a_secret_of_this_installation_is_hidden_without_any_hint() -> None:
    env = read_env(
        {
            "DATABASE_URL": "postgresql://u:one%2Fsecret@h/x?sslpassword=two-secrets",
            "REDIS_URL": "redis://:three-secrets@h:1/0",
            "OFFPEAK_OIDC_CLIENT_SECRET": "four-secrets",
            "OFFPEAK_OIDC_ISSUER_URL": "https://sign-on.example",
            "OFFPEAK_OIDC_CLIENT_ID": "offpeak",
        }
    )
    clean = Redaction(spellings(secrets_of(env))).text(
        "one/secret one%2Fsecret two-secrets three-secrets four-secrets stay"
    )

    assert clean == " ".join([HIDDEN] * 5) + " stay"
    assert "secret" not in repr(env).replace("_secret", "").replace("secret_key", "")


def test_a_traceback_tells_places_and_sentences_and_no_values() -> None:
    def prove(text: str) -> None:
        secret = f"{text}!"
        raise LookupError(f"no such thing: {len(secret)}") from ValueError(text)

    with pytest.raises(LookupError) as raised:
        prove(TOKEN)
    [first, cause] = told(raised.value)

    assert first["type"] == "builtins.LookupError"
    assert first["where"][-1].endswith("in prove")
    assert cause["type"] == "builtins.ValueError"
    line = json.dumps(Redaction(())(None, "error", {"exception": told(raised.value)}))
    assert TOKEN[17:] not in line


def test_one_kind_of_line_leaves_room_for_the_others_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("config.logs.lines.time.monotonic", lambda: clock[0])
    pace = Pace()

    taken = [pace.take("foreign host") for _ in range(LINES_PER_MINUTE + 7)]
    assert taken.count(None) == 7
    assert pace.take("a failure of ours") == 0
    clock[0] = 60.0
    assert pace.take("foreign host") == 7


# A process of the product: its settings, its database away, its log-ins, its API, its threads.
STORM = """
import logging, os, sys, threading, warnings
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
django.setup()
import structlog
from django.conf import settings
from django.test import Client
from config.web.statics import gather_static_files
gather_static_files()
token, password = sys.argv[1:]
client = Client(raise_request_exception=False, SERVER_NAME="localhost")
bearer = {"authorization": f"Bearer {token}"}
for _ in range(2 if settings.DEBUG else 100):
    client.get("/", headers={"host": "foreign.example", "cookie": f"sessionid={password}"})
client.get("/api/v1/me", headers=bearer)
client.post("/api/v1/bids", {"password": password}, "application/json", headers=bearer)
client.post("/accounts/login/", {"login": "a@b.example", "password": password})
client.get(f"/accounts/login/?token={token}", headers={"cookie": f"sessionid={password}"})
client.get("/readyz")
def prove(secret):
    raise ConnectionError(f"away: {settings.ENV} {settings.DATABASES}")
def die(secret):
    raise RuntimeError(f"refused {{'authorization': '{secret}'}}")
for log in (structlog.get_logger(), logging.getLogger("django.request"), logging.getLogger("x.y")):
    try:
        prove(token)
    except ConnectionError:
        log.exception("request failed")
thread = threading.Thread(target=die, args=(token,))
thread.start()
thread.join()
warnings.warn(f"deprecated: password={password}")
logging.getLogger("uvicorn.access").info("GET /x?token=%s", token)
logging.getLogger("uvicorn.error").error("bad request %s", bearer)
print("the storm is over", file=sys.stderr)
die(token)
"""


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_storm_of_faults_writes_no_secret(tmp_path: Path, debug: str) -> None:
    home = tmp_path / "home"
    ran = subprocess.run(
        [sys.executable, "-c", STORM, TOKEN, PASSWORD],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "OFFPEAK_HOME": str(home),
            "OFFPEAK_DEBUG": debug,
            "DATABASE_URL": "postgresql://u:d4tabase-secret@127.0.0.1:1/x",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    written = ran.stdout + ran.stderr

    assert ran.returncode == 1
    assert "the storm is over" in written
    assert "Connection refused" in written
    for secret in (TOKEN[17:], PASSWORD, "d4tabase-secret", (home / "secret_key").read_text()):
        assert secret not in written
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    assert {"thread.failed", "process.failed"} <= {line["event"] for line in lines}
    foreign = [line for line in lines if line.get("host") == "foreign.example"]
    assert 0 < len(foreign) <= LINES_PER_MINUTE
    assert all(len(json.dumps(line)) < 600 for line in foreign)
    assert not re.search(r"^Traceback", written, re.MULTILINE)
