"""DATABASE_URL means what libpq says, or is refused in one sentence without its password."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config.database.address import AddressUnclear, read_address

ROOT = Path(__file__).resolve().parents[2]
SECRET = "pass-word-nobody-sees"


def read(url: str) -> dict[str, Any]:
    return read_address(url, connect_seconds=3)


def test_everything_after_the_question_mark_reaches_libpq() -> None:
    found = read(
        "postgresql://anna:p%40ss@db.example:5433/market?sslmode=require&application_name=gpus"
        "&options=-c%20search_path%3Dmarket"
    )

    assert (found["NAME"], found["USER"], found["PASSWORD"]) == ("market", "anna", "p@ss")
    assert (found["HOST"], found["PORT"]) == ("db.example", "5433")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["application_name"] == "gpus"
    assert found["OPTIONS"]["options"] == "-c search_path=market"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://a:1,b:2/n?target_session_attrs=read-write", "a,b", "1,2"),
        ("postgresql:///n?host=/run/postgresql", "/run/postgresql", ""),
        ("postgresql://%2Frun%2Fpostgresql/n", "/run/postgresql", ""),
        ("postgresql://[::1]:5433/n", "::1", "5433"),
        ("postgresql://a/n?port=5434", "a", "5434"),
        ("postgres://a,b,c/n", "a,b,c", ",,"),
    ],
)
def test_hosts_sockets_and_ports_are_read_in_every_form(url: str, host: str, port: str) -> None:
    found = read(url)

    assert (found["NAME"], found["HOST"], found["PORT"]) == ("n", host, port)


def test_a_time_limit_of_the_address_goes_before_ours() -> None:
    assert read("postgresql://a/n")["OPTIONS"]["connect_timeout"] == "3"
    assert read("postgresql://a/n?connect_timeout=9")["OPTIONS"]["connect_timeout"] == "9"
    assert read("postgresql://a/n?keepalives_idle=77")["OPTIONS"]["keepalives_idle"] == "77"


def test_a_service_is_looked_up_by_libpq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = tmp_path / "services"
    services.write_text("[market]\nhost=db.example\ndbname=gpus\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))

    found = read("postgresql://?service=market")

    assert found["NAME"] == ""
    assert found["OPTIONS"]["service"] == "market"
    with pytest.raises(AddressUnclear, match='service "another" not found'):
        read("postgresql://?service=another")


def test_without_a_name_it_is_the_users_database() -> None:
    assert read("postgresql://anna@a")["NAME"] == "anna"


@pytest.mark.parametrize(
    "rest",
    [
        "@a:99999/n",
        "@a:0/n",
        "@a:1,b:x/n",
        "@a,b,c/n?port=1,2",
        "@a/n?sslmode=maybe",
        "@a/n?sslmod=require",
        "@a/n?target_session_attrs=writer",
        "@a/n?connect_timeout=soon",
        "@a/n?tcp_user_timeout=1s",
        "@a/n?connect_timeout=--5",
        "@a/n?connect_timeout=99999999999999",
        "@a/n?keepalives=9999999999999",
        "@\udcff/n",
        "@a/n?sslmode=verify-full&sslrootcert=/not/there.pem",
        "@a/n?service=not-there",
        "@[::1/n",
        "%zz@a/n",
        "@a/" + "n" * 64,
    ],
)
def test_what_libpq_would_refuse_each_time_is_refused_at_once(rest: str) -> None:
    with pytest.raises(AddressUnclear) as refused:
        read(f"postgresql://anna:{SECRET}{rest}")

    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_parameter_that_is_misspelt_is_named() -> None:
    with pytest.raises(AddressUnclear, match="does not know: sslmod"):
        read("postgresql://anna:x@a/n?sslmod=require")


@pytest.mark.parametrize("rest", ["@a:99999/n", "@a/n?sslmode=maybe", "%zz@a/n"])
def test_a_process_says_so_in_one_sentence_and_ends(rest: str) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": f"postgresql://anna:{SECRET}{rest}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    [sentence] = ended.stderr.strip().splitlines()
    assert sentence.startswith("DATABASE_URL ")
    assert SECRET not in ended.stderr + ended.stdout
