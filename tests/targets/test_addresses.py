"""Which addresses a connection may be made to."""

from ipaddress import ip_network

import pytest

from redrive.extras.targets.addresses import is_allowed

INWARD = """
    127.0.0.1 127.255.255.254 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1
    100.100.100.200 169.254.169.254 169.254.170.2 168.63.129.16 192.0.0.192 198.18.0.1 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255
    ::1 :: fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 ff02::1 2001:db8::1 2001::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::10.0.0.1
    64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2002:a9fe:a9fe::
    fec0::1 ::127.0.0.1 ::169.254.169.254 ::ffff:0:169.254.169.254 5f00::1 100:0:0:1::1 3fff::1
"""
OUTWARD = """
    1.1.1.1 93.184.216.34 172.15.0.1 172.32.0.1 168.63.129.17 2606:4700:4700::1111
    ::ffff:1.1.1.1 64:ff9b::1.1.1.1 2002:101:101::
"""


@pytest.mark.parametrize("address", INWARD.split())
def test_an_inward_address_is_allowed_by_its_network_alone(address: str):
    """Local, private, shared, reserved, metadata, however they are written."""
    assert not is_allowed(address, [])
    assert not is_allowed(
        address, [ip_network("203.0.113.0/24"), ip_network("2001:db8:1::/48")]
    )
    assert is_allowed(address, [ip_network(address.partition("%")[0])])


@pytest.mark.parametrize("address", OUTWARD.split())
def test_an_address_of_the_internet_is_allowed(address: str):
    assert is_allowed(address, [])
