"""Which addresses may be connected to. Every expected value is read off IANA's registries or a cloud's manual."""

import pytest

from retrievers.http.public_addresses import address_refusal

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "for this network only",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.0": "shared by a carrier's customers",
    "100.100.100.200": "shared by a carrier's customers",  # Alibaba's metadata
    "100.127.255.255": "shared by a carrier's customers",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "cloud metadata",  # Azure
    "169.254.0.1": "link-local",
    "169.254.169.254": "cloud metadata",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "reserved for protocols",
    "192.0.0.192": "cloud metadata",  # Oracle
    "192.0.2.1": "for documentation",
    "192.31.196.1": "reserved for protocols",
    "192.52.193.1": "reserved for protocols",
    "192.88.99.1": "reserved for protocols",
    "192.168.1.1": "private",
    "192.175.48.1": "reserved for protocols",
    "198.18.0.1": "for benchmarks",
    "198.19.255.255": "for benchmarks",
    "198.51.100.1": "for documentation",
    "203.0.113.1": "for documentation",
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::1": "loopback",
    "0:0:0:0:0:0:0:1": "loopback",
    "::2": "a form of 0.0.0.2, which is for this network only",
    "::127.0.0.1": "a form of 127.0.0.1, which is loopback",
    "::ffff:127.0.0.1": "a form of 127.0.0.1, which is loopback",
    "::ffff:7f00:1": "a form of 127.0.0.1, which is loopback",
    "::ffff:a9fe:a9fe": "a form of 169.254.169.254, which is cloud metadata",
    "::ffff:0:127.0.0.1": "a form of 127.0.0.1, which is loopback",
    "64:ff9b::7f00:1": "a form of 127.0.0.1, which is loopback",
    "64:ff9b::169.254.169.254": "a form of 169.254.169.254, which is cloud metadata",
    "64:ff9b:1::1": "for translation within one network",
    "64:ff9b:1:7f00:0:100::": "for translation within one network",
    "100::1": "discarded",
    "2001:0:7f00:1::": "a form of 127.0.0.1, which is loopback",  # Teredo, by its server
    "2001:0:808:808::80ff:fffe": "a form of 127.0.0.1, which is loopback",  # and by its client, whose bits are turned
    "2001:0:808:808::f7f7:f7f7": "reserved for protocols",
    "2001:1::1": "reserved for protocols",
    "2001:2::1": "for benchmarks",
    "2001:20::1": "reserved for protocols",
    "2001:db8::1": "for documentation",
    "2002:7f00:1::": "a form of 127.0.0.1, which is loopback",  # 6to4
    "2002:c0a8:101::1": "a form of 192.168.1.1, which is private",
    "2606:4700::5efe:10.0.0.1": "a form of 10.0.0.1, which is private",  # ISATAP
    "2606:4700::200:5efe:127.0.0.1": "a form of 127.0.0.1, which is loopback",
    "2620:4f:8000::1": "reserved for protocols",
    "3fff::1": "for documentation",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "private",  # the metadata of Amazon
    "fd20:ce::254": "private",  # and of Google
    "fe80::1": "link-local",
    "fe80::1%eth0": "for one link only",
    "2606:4700::1%1": "for one link only",
    "febf::1": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "multicast",
    "fe00::1": "reserved",
    "": "no address",
    "127.1": "no address",
    "localhost": "no address",
    "93.184.215.14 ": "no address",
}
ALLOWED = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.215.14", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0"),
    *("172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255"),
    *("198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:800::200e", "2400:cb00::1"),
    *("2001:200::1", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::1", "2620:4f:8001::1"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2606:4700::5efe:8.8.8.8"),
]


@pytest.mark.parametrize(("address", "reason"), REFUSED.items())
def test_what_is_not_public_is_refused_and_named(address: str, reason: str):
    assert address_refusal(address) == reason


@pytest.mark.parametrize("address", ALLOWED)
def test_public_addresses_are_allowed_up_to_their_neighbours(address: str):
    assert address_refusal(address) is None
