"""Check of addresses: public ones and configured networks are allowed.

The owner of a name can point it at an internal address. There a database, this machine,
or the credentials service of a cloud might answer.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

INWARD_ALL_THE_SAME = (
    IPv4Network("168.63.129.16/32"),  # Azure: host services at a global address
    IPv4Network("192.0.0.0/24"),  # Oracle's metadata; older Pythons call it public
    IPv6Network("3fff::/20"),  # documentation; as above
)

INTERNET = IPv6Network("2000::/3")
"""The IPv6 addresses in use. Others are local, reserved, or lead to an IPv4 address."""

NAT64 = IPv6Network("64:ff9b::/96")


def is_allowed(text: str, named: Iterable[Network]) -> bool:
    """Return True if a connection to an address is allowed.

    Args:
        text: the address from the resolver.
        named: internal networks that are allowed nevertheless.
    """
    # A link-local address may end with its interface, as in fe80::1%eth0.
    address = ip_address(text.partition("%")[0])
    if any(address in network for network in named):
        return True

    reached = _reached(address)
    is_inward = (
        not reached.is_global
        or any(reached in network for network in INWARD_ALL_THE_SAME)
        or (isinstance(reached, IPv6Address) and reached not in INTERNET)
    )

    return not is_inward and not reached.is_multicast


def _reached(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, or else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)

    return address.ipv4_mapped or address.sixtofour or address
