"""The network list: what an entry may be, and to which addresses a name may lead."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.errors import UsageError
from wink_workspace.sandbox import NetworkLimits, NetworkRequest, NetworkRules, SecretHost
from wink_workspace.sandbox.network import HostPort, address_refusal, normal_host, outside_effects

SECRET = "Bearer 0123456789abcdef"


def test_the_default_list_permits_nothing() -> None:
    rules = NetworkRules()
    assert not rules
    assert rules.lines() == ()
    assert not rules.hosts


def test_a_list_is_shown_without_the_values_of_secrets() -> None:
    secret = SecretHost(name="tracker", host="tracker.test:443", value=SECRET)
    rules = NetworkRules(
        allowed=("npm", "API.Example.org.:8443", "pypi"),
        private=("api.example.org",),
        secrets=(secret,),
    )
    assert rules.lines() == (
        "pypi (read only)",
        "npm (read only)",
        "api.example.org:8443 (private addresses allowed)",
        "tracker -> tracker.test:443 (with a secret)",
    )
    assert SECRET not in repr(rules)
    assert SECRET[7:] not in repr(rules)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("pipy", "neither a registry nor host:port"),
        ("example.org", "neither a registry nor host:port"),
        ("https://example.org", "no port"),
        ("example.org:", "no port"),
        ("example.org:0", "no valid port"),
        ("example.org:065", "no valid port"),
        ("example.org:65536", "no valid port"),
        ("example.org:४४३", "no port"),
        ("*.example.org:443", "is a pattern"),
        ("10.0.0.1:443", "is an address"),
        ("127.1:443", "is an address"),
        ("0x7f000001:443", "is an address"),
        ("2130706433:443", "is an address"),
        ("example.0x1:443", "is an address"),
        ("[::1]:443", "is an address"),
        ("bücher.example:443", "not ASCII"),
        ("a..b:443", "not a host name"),
        ("-a.example:443", "not a host name"),
        ("a b.example:443", "not a host name"),
        ("user@example.org:443", "not a host name"),
        (".:443", "not a host name"),
        (f"{'a' * 64}.example:443", "not a host name"),
        ("pypi.wink.internal:80", "name of the proxy itself"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_name(entry: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        NetworkRules(allowed=(entry,))
    assert caught.value.hint


@pytest.mark.parametrize(
    "values",
    [
        {"name": "pypi"},
        {"name": "list"},
        {"name": "A b"},
        {"host": "tracker.test"},
        {"value": "tiny"},
        {"value": "Bearer tiny"},
        {"value": "with\r\nX-Injected: header"},
        {"header": "Host"},
        {"header": "Transfer-Encoding"},
        {"header": "X:Y"},
        {"variable": "A=B"},
    ],
)
def test_an_invalid_secret_is_refused_without_showing_it(values: dict[str, str]) -> None:
    valid = {"name": "tracker", "host": "tracker.test:443", "value": SECRET}
    with pytest.raises(UsageError) as caught:
        SecretHost(**{**valid, **values})
    assert values.get("value", SECRET) not in str(caught.value)


def test_two_secrets_with_one_name_are_refused() -> None:
    secret = SecretHost(name="tracker", host="tracker.test:443", value=SECRET)
    with pytest.raises(UsageError, match="same name"):
        NetworkRules(secrets=(secret, secret))


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="idle_s is 0"):
        NetworkLimits(idle_s=0)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0", "unspecified"),
        ("169.254.169.254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("192.0.0.192", "reserved"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::7f00:1", "IPv6 form"),
        ("::ffff:127.0.0.1", "IPv6 form"),
        ("::ffff:8.8.8.8", "IPv6 form"),
        ("64:ff9b::a00:1", "IPv6 form"),
        ("64:ff9b:1::1", "IPv6 form"),
        ("2002:7f00:1::", "IPv6 form"),
        ("2001:0:7f00:1::", "IPv6 form"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("localhost", "not an address"),
        ("0177.0.0.1", "not an address"),
        ("", "not an address"),
    ],
)
def test_some_addresses_are_refused_whatever_the_user_permits(address: str, reason: str) -> None:
    for private in (False, True):
        refusal = address_refusal(address, private=private, local=private)
        assert refusal is not None
        assert reason in refusal


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "local"),
        ("127.8.9.10", "local"),
        ("::1", "local"),
        ("10.1.2.3", "private"),
        ("172.31.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("198.18.0.1", "private"),
        ("fd12::1", "private"),
        ("203.0.113.9", "private"),
        ("2001:db8::1", "private"),
    ],
)
def test_private_and_local_addresses_need_a_permission_of_their_own(
    address: str, kind: str
) -> None:
    assert address_refusal(address) is not None
    assert address_refusal(address, private=kind != "private", local=kind != "local") is not None
    assert address_refusal(address, private=kind == "private", local=kind == "local") is None


@given(st.ip_addresses())
def test_what_is_permitted_without_more_is_a_global_address(
    address: IPv4Address | IPv6Address,
) -> None:
    if address_refusal(str(address)) is None:
        assert ip_address(str(address)).is_global
        assert not address.is_multicast


@given(st.text(max_size=80) | st.from_regex(r"[a-zA-Z0-9.-]{1,20}", fullmatch=True))
def test_a_name_has_one_normal_form_or_is_refused(text: str) -> None:
    with suppress(UsageError):
        name = normal_host(text)
        assert normal_host(name) == normal_host(name.upper()) == normal_host(f"{name}.") == name
        assert str(HostPort.parse(f"{name}:443")) == f"{name}:443"


def test_outside_effects_are_requests_that_sent_something() -> None:
    def request(host: str, n_sent: int) -> NetworkRequest:
        return NetworkRequest(method="GET", host=host, n_sent=n_sent)

    requests = (request("a.test", 1_000), request("b.test", 0), request("a.test", 234))
    assert outside_effects(requests) == ("network: 2 requests to a.test, 1,234 bytes sent",)
