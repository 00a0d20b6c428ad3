"""Allowed addresses: those of the internet, and the networks that the configuration
names.

Whoever answers for a name can let it lead inwards, to a database, to this machine or to the
credentials that a cloud hands out at an address of its own.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

INWARD_ALL_THE_SAME = (
    IPv4Network("168.63.129.16/32"),  # Azure: a machine's own services, at a global address
    IPv4Network("192.0.0.0/24"),  # Oracle's metadata among others; private to a newer Python alone
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of one's own; as above
)

NAT64 = IPv6Network("64:ff9b::/96")


def is_allowed(text: str, named: Iterable[Network]) -> bool:
    """Return True if a connection to an address is allowed.

    Args:
        text: the address, as the resolver has it.
        named: networks that are allowed although they lead inwards.
    """
    address = ip_address(text.partition("%")[0])
    if any(address in network for network in named):
        return True
    reached = _reached(address)
    is_inward = not reached.is_global or any(reached in network for network in INWARD_ALL_THE_SAME)
    return not is_inward and not reached.is_multicast


def _reached(address: Address) -> Address:
    """The address of version 4 that is written inside one of version 6, or else itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
