"""The agent's options from a file: complete, with defaults, and clear about what does not fit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from metering.agent import configuration
from metering.agent.__main__ import _parser, main
from metering.agent.configuration import ConfigUnfit, arguments_of, template
from metering.agent.metrics import read_address


def options(tmp_path: Path, text: str, *given: str) -> object:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    parser = _parser()
    return parser.parse_args(arguments_of(parser, ["run", "--config", str(file), *given]))


def test_what_is_printed_reads_back_as_the_defaults(tmp_path: Path) -> None:
    text = template(_parser())
    assert options(tmp_path, text, "--server", "x") == options(tmp_path, "", "--server", "x")


def test_every_option_is_there_and_may_be_given_in_the_file(tmp_path: Path) -> None:
    lines = template(_parser()).splitlines()
    names = {line[2:].partition(" = ")[0] for line in lines if " = " in line}
    assert set(configuration._options(_parser())) <= names
    assert {"server", "work-users", "filler", "metrics", "registry", "verbose"} <= names
    uncommented = "\n".join(
        line[2:] for line in lines if " = " in line and "nothing by default" not in line
    )
    assert "state-dir" in tomllib.loads(uncommented)
    options(tmp_path, uncommented)


def test_a_flag_takes_the_place_of_the_file(tmp_path: Path) -> None:
    text = 'server = "https://a"\nregistry = ["one", "two"]\nverbose = true\nwork-cpus = 2\n'

    by_file = options(tmp_path, text)
    by_flags = options(tmp_path, text, "--server", "https://b", "--registry=three")

    assert vars(by_file)["server"] == "https://a" and vars(by_file)["registry"] == ["one", "two"]
    assert (vars(by_file)["verbose"], vars(by_file)["work_cpus"]) == (True, 2)
    assert vars(by_flags)["server"] == "https://b" and vars(by_flags)["registry"] == ["three"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('work-user = "a"\nservr = "x"\n', "there is no option 'servr'; did you mean 'server'?"),
        ("once = true\n", "there is no option 'once'"),
        ("server = [1]\n", "'server' is a text or a whole number, not [1]"),
        ("server = true\n", "'server' is a text or a whole number, not True"),
        ("verbose = 1\n", "'verbose' is true or false, not 1"),
        ("registry = [1.5]\n", "'registry' is texts in brackets, not 1.5"),
        ('confine = "maybe"\n', "'confine' is one of auto, off, not 'maybe'"),
        ("work-cpus = 0\n", "'work-cpus': a whole number above 0, not '0'"),
        ('metrics = "0.0.0.0:9400"\n', "an address of this machine alone"),
        ('filler = "\'"\n', "a command line as a shell reads it"),
        ("server\n", "is no TOML"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigUnfit) as refused:
        options(tmp_path, text)

    assert reason in str(refused.value) and "agent.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_refused_where_it_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--config", str(tmp_path / "none.toml")])

    assert "none.toml: No such file" in capsys.readouterr().err


def test_it_is_printed_for_the_owner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--print"]) == 0
    assert capsys.readouterr().out == template(_parser())
    with pytest.raises(SystemExit):
        main(["config"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9400", ("127.0.0.1", 9400)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("[::1]:9400", ("::1", 9400)),
    ],
)
def test_metrics_are_of_this_machine(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["9400", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "x:9", ""])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="an address and a port"):
        read_address(text)


@pytest.mark.parametrize("text", ["0.0.0.0:9400", "10.0.0.1:9400", "[::]:9400"])
def test_metrics_go_to_no_other_machine(text: str) -> None:
    with pytest.raises(ValueError, match="of this machine alone"):
        read_address(text)
