"""An address has one form, however it is written; what cannot be used is refused with reasons."""

from __future__ import annotations

import pytest

from config.address import (
    AddressUnclear,
    address_on_this_machine,
    is_loopback,
    read_base_url,
    read_host,
    read_host_names,
    read_service_url,
    work_domain_fault,
)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://gpu.example", "https://gpu.example"),
        ("https://gpu.example/", "https://gpu.example"),
        ("https://gpu.example//", "https://gpu.example"),
        ("HTTPS://GPU.Example", "https://gpu.example"),
        ("https://gpu.example:443", "https://gpu.example"),
        ("https://gpu.example:8443/", "https://gpu.example:8443"),
        ("http://gpu.example:80", "http://gpu.example"),
        ("http://gpu.example:443", "http://gpu.example:443"),
        ("https://gpu.example.", "https://gpu.example"),
        ("https://münchen.example", "https://xn--mnchen-3ya.example"),
        ("https://MÜNCHEN.example", "https://xn--mnchen-3ya.example"),
        ("https://xn--mnchen-3ya.example", "https://xn--mnchen-3ya.example"),
        ("https://10.0.0.5:8000", "https://10.0.0.5:8000"),
        ("https://[2001:DB8::5]:8443", "https://[2001:db8::5]:8443"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("https://gpu", "https://gpu"),
    ],
)
def test_a_base_url_is_an_origin(text: str, origin: str) -> None:
    assert read_base_url(text) == origin
    assert read_base_url(origin) == origin


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://gpu.example/offpeak", "without the path '/offpeak'"),
        ("https://gpu.example/offpeak/", "a host name of its own"),
        ("https://gpu.example/?a=1", "nothing after it"),
        ("https://gpu.example?", "nothing after it"),
        ("https://gpu.example/#top", "nothing after it"),
        ("https://user@gpu.example", "without a user"),
        ("https://user:secret@gpu.example", "without a user"),
        ("https://gpu.example:", "a port from 1 to 65535"),
        ("https://gpu.example:0", "a port from 1 to 65535"),
        ("https://gpu.example:99999", "a port from 1 to 65535"),
        ("https://gpu.example:http", "a port from 1 to 65535"),
        ("https://", "https://host"),
        ("https:///x", "https://host"),
        ("gpu.example", "https://host"),
        ("ftp://gpu.example", "https://host"),
        ("https:gpu.example", "https://host"),
        ("https://gpu example", "without blanks"),
        ("https://gpu.example\n", "without blanks"),
        ("https://gpu.example\\x", "without blanks"),
        ("https://gpu_1.example", "name or address of a host"),
        ("https://*.example", "name or address of a host"),
        ("https://-gpu.example", "name or address of a host"),
        ("https://1.2.3", "name or address of a host"),
        ("https://0.0.0.0", "can be called"),
        ("https://[::]", "can be called"),
        ("https://[::1", "port"),
    ],
)
def test_a_base_url_that_is_no_origin_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(AddressUnclear) as refused:
        read_base_url(text)

    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)


def test_another_services_address_keeps_its_path_and_loses_its_slash() -> None:
    assert read_service_url("https://id.example/realms/gpu/") == "https://id.example/realms/gpu"


def test_names_are_read_in_one_form() -> None:
    names = read_host_names(" GPU.example, .Example.org ,[::1],::1,10.0.0.5,")

    assert names == ["gpu.example", ".example.org", "[::1]", "[::1]", "10.0.0.5"]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.0.0.5", "http://10.0.0.5:8000"),
        ("localhost", "http://localhost:8000"),
    ],
)
def test_a_server_is_called_where_it_listens(host: str, address: str) -> None:
    assert address_on_this_machine(host, 8000) == address


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("localhost", True),
        ("127.0.0.2", True),
        ("[::1]", True),
        ("gpu.localhost", True),
        ("gpu.example", False),
        ("10.0.0.5", False),
        ("0.0.0.0", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, alone: bool) -> None:
    assert is_loopback(read_host(host)) is alone


@pytest.mark.parametrize(
    ("domain", "site", "fits"),
    [
        ("", "https://gpu.example", True),
        ("work.example", "https://gpu.example", True),
        ("localhost", "", True),
        ("work.example", "", True),
        ("gpu.example", "https://gpu.example", False),
        ("work.gpu.example", "https://gpu.example", False),
        ("example.org", "https://gpu.example.org:8443", False),
        ("10.0.0.5", "https://gpu.example", False),
        ("work", "https://gpu.example", False),
    ],
)
def test_the_domain_of_work_is_apart_from_the_site(domain: str, site: str, fits: bool) -> None:
    assert (work_domain_fault(domain, site) == "") is fits
