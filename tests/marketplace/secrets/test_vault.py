"""Keys of the installation: apart from the one for sessions, changed while processes run."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from config.env import Env, read_env
from config.security.work_keys import NAME, add_key, drop_old_keys, work_keys
from ledger import vault
from ledger.vault import Sealed, Vault, VaultLocked
from marketplace import secrets
from marketplace.models.secrets import SecretValueRow
from tests.access.conftest import Caller
from tests.marketplace.secrets.conftest import VALUE
from tests.marketplace.secrets.hunting import files_with, tables_with

pytestmark = pytest.mark.urls("tests.marketplace.support.routes")
LABEL = b"whose"


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """A data directory of this test's own, whose keys the site uses."""
    settings.HOME = tmp_path / "home"
    settings.ENV = Env()
    return tmp_path / "home"


@pytest.fixture
def ours(home: Path, monkeypatch: pytest.MonkeyPatch) -> Vault:
    ours = Vault(work_keys(Env(), home))
    monkeypatch.setattr(vault, "_installed", ours)
    return ours


def test_what_is_sealed_opens_under_its_label_alone() -> None:
    ours = Vault(lambda: [b"a master of this installation"])
    sealed = ours.seal(LABEL, b"value")

    assert ours.open(LABEL, sealed) == b"value"
    assert b"value" not in sealed.value + sealed.key
    assert ours.seal(LABEL, b"value").value != sealed.value
    for label, other in (
        (b"another", sealed),
        (LABEL, Sealed(sealed.master, sealed.key, sealed.value[:-1] + b"x")),
        (LABEL, Sealed(sealed.master, sealed.key[:-1] + b"x", sealed.value)),
        (LABEL, Sealed(sealed.master, sealed.key, b"")),
        (LABEL, Sealed("0" * 16, sealed.key, sealed.value)),
    ):
        with pytest.raises(VaultLocked):
            ours.open(label, other)


def test_a_new_master_opens_what_was_wrapped_anew_and_the_old_one_does_not() -> None:
    masters = [b"old"]
    ours, old = Vault(lambda: masters), Vault(lambda: [b"old"])
    sealed = ours.seal(LABEL, b"value")
    masters[:] = [b"new", b"old"]
    anew = ours.rewrap(LABEL, sealed)
    masters[:] = [b"new"]

    assert ours.open(LABEL, anew) == b"value"
    assert anew.value == sealed.value
    with pytest.raises(VaultLocked):
        old.open(LABEL, anew)
    with pytest.raises(VaultLocked):
        ours.open(LABEL, sealed)


def test_keys_are_made_once_apart_from_that_of_sessions_and_are_nobody_elses(home: Path) -> None:
    first, second = work_keys(Env(), home), work_keys(Env(), home)

    assert first() == second() and len(first()[0]) > 40
    assert (home / NAME).stat().st_mode & 0o777 == 0o600
    assert NAME != "secret_key"


def test_a_process_that_runs_takes_up_a_change_of_keys(home: Path) -> None:
    keys = work_keys(Env(), home)
    [old] = keys()
    add_key(home)
    new, kept = keys()
    drop_old_keys(home)

    assert kept == old and keys() == [new]


def test_keys_that_are_given_go_before_those_of_the_data_directory(home: Path) -> None:
    env = read_env({"OFFPEAK_WORK_SECRET_KEY": "n" * 40, "OFFPEAK_OLD_WORK_SECRET_KEY": "o" * 40})

    assert work_keys(env, home)() == [b"n" * 40, b"o" * 40]
    assert not home.exists()
    assert "n" * 40 not in repr(env) and "o" * 40 not in repr(env)
    with pytest.raises(SystemExit, match="OFFPEAK_WORK_SECRET_KEY beside it"):
        read_env({"OFFPEAK_OLD_WORK_SECRET_KEY": "o" * 40})


@pytest.mark.django_db
def test_rekey_changes_the_key_under_all_values(
    ada: Caller, home: Path, ours: Vault, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("A", "B"):
        ada.ask("PUT", f"/api/v1/secrets/{name}", {"value": VALUE})
    before = {row.name: bytes(row.value) for row in SecretValueRow.objects.all()}
    [old] = work_keys(Env(), home)()

    call_command("rekey")

    assert "2 values are wrapped anew" in capsys.readouterr().out
    assert old not in work_keys(Env(), home)()
    values, _ = secrets.opened(ours, ada.tenant_id, ["A", "B"])
    assert set(values.values()) == {VALUE.encode()}
    with pytest.raises(VaultLocked):
        secrets.opened(Vault(lambda: [old]), ada.tenant_id, ["A"])
    assert {row.name: bytes(row.value) for row in SecretValueRow.objects.all()} == before
    assert tables_with(VALUE) == [] and files_with(home, VALUE) == []


@pytest.mark.django_db
def test_rekey_drops_no_key_while_a_value_opens_with_none(
    ada: Caller, home: Path, ours: Vault
) -> None:
    ada.ask("PUT", "/api/v1/secrets/A", {"value": VALUE})
    ada.ask("PUT", "/api/v1/secrets/LOST", {"value": VALUE})
    SecretValueRow.objects.filter(name="LOST").update(master="0" * 16)
    keys = work_keys(Env(), home)

    with pytest.raises(CommandError, match="1 open with no key"):
        call_command("rekey")

    assert len(keys()) == 2
    assert secrets.opened(ours, ada.tenant_id, ["A"])[0]["A"] == VALUE.encode()


@pytest.mark.django_db
def test_more_values_than_one_transaction_takes_are_all_wrapped_anew(
    ours: Vault, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "BATCH", 2)
    tenant_id = uuid4()
    for number in range(5):
        sealed = ours.seal(secrets.label_of(tenant_id, f"S{number}", 1), b"value")
        SecretValueRow.objects.create(
            secret_id=uuid4(), tenant_id=tenant_id, name=f"S{number}", version=1,
            master=sealed.master, key=sealed.key, value=sealed.value,
        )  # fmt: skip
    add_key(home)

    assert secrets.rewrap_all(ours) == (5, 0)
    assert secrets.rewrap_all(ours) == (0, 0)
