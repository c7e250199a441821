"""Decide which IP addresses may be connected to: only public unicast addresses, by a list of our own.

`ipaddress.is_global` does not suffice: it accepts multicast, cloud metadata and IPv4 addresses inside IPv6.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_IPV4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "for this network only"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.169.254/32", "cloud metadata"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("168.63.129.16/32", "cloud metadata"),
        ("192.0.0.192/32", "cloud metadata"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.31.196.0/24", "reserved for protocols"),
        ("192.52.193.0/24", "reserved for protocols"),
        ("192.88.99.0/24", "reserved for protocols"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "reserved for protocols"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
"""Forbidden networks, each with the reason; the first match counts. They are those of IANA's special-purpose registry,
multicast, and cloud services at addresses that look public.
"""

_IPV6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "for translation within one network"),
        ("100::/64", "discarded"),
        ("2001:2::/48", "for benchmarks"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "for documentation"),
        ("2620:4f:8000::/48", "reserved for protocols"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_LOW_32_BITS_ARE_IPV4 = tuple(
    IPv6Network(network)
    for network in (
        "::/96",  # compatible
        "::ffff:0:0/96",  # mapped
        "::ffff:0:0:0/96",  # translated
        "64:ff9b::/96",  # NAT64
    )
)
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_32_BITS = 0xFFFFFFFF
# The middle of an ISATAP address, 0000:5efe or 0200:5efe.
_ISATAP, _ISATAP_BITS = 0x00005EFE, 0xFDFFFFFF


def address_refusal(address: str) -> str | None:
    """Return why an address may not be connected to ("loopback"); None if connections to it are allowed.

    Args:
        address: IPv4 or IPv6, in a form that `ipaddress` parses. For any other text the result is "no address".
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return "no address"
    if isinstance(ip, IPv4Address):
        return _named(ip, _IPV4)
    if ip.scope_id is not None:
        return "for one link only"
    inside = tuple(_embedded(ip))
    for ipv4 in inside:
        if reason := _named(ipv4, _IPV4):
            return f"a form of {ipv4}, which is {reason}"
    if reason := _named(ip, _IPV6):
        return reason
    return None if inside or ip in _GLOBAL_UNICAST else "reserved"


def _named(
    ip: IPv4Address | IPv6Address, networks: Iterable[tuple[IPv4Network, str] | tuple[IPv6Network, str]]
) -> str | None:
    return next((what for network, what in networks if ip in network), None)


def _embedded(ip: IPv6Address) -> Iterable[IPv4Address]:
    """Yield the IPv4 addresses contained in an IPv6 address: a network may forward its traffic to them."""
    value = int(ip)
    if value > 1 and any(ip in network for network in _LOW_32_BITS_ARE_IPV4):
        yield IPv4Address(value & _32_BITS)
    if ip in _6TO4:
        yield IPv4Address(value >> 80 & _32_BITS)
    if ip in _TEREDO:
        yield IPv4Address(value >> 64 & _32_BITS)  # the server
        yield IPv4Address(~value & _32_BITS)  # the client
    if value >> 32 & _ISATAP_BITS == _ISATAP:
        yield IPv4Address(value & _32_BITS)
