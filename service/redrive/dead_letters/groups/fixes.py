"""Rules for resolved groups: which versions of the application have a fix.

A version has numbers with dots, such as 1.4.2, v1.4.2, 2026.11.24 or 1.4.2-rc1. A plain
number of up to six digits is a version, too. Build metadata after `+` has no order, so
it is ignored. All other texts, such as hashes of commits, have no order.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from redrive.rules.rows import Fields

if TYPE_CHECKING:
    from packaging.version import Version

MAX_VERSION = 127
"""Longest version of a worker."""

MAX_FIXES = 20
"""Most versions with the fix: one for each release line."""

_STAGE = r"(?:[-._]?(?:dev|alpha|a|beta|b|preview|pre|c|rc|post)[-._]?[0-9]{0,9})"
_ORDERED = re.compile(
    rf"v?(?:[0-9]{{1,6}}|[0-9]{{1,18}}(?:\.[0-9]{{1,18}}){{1,9}}{_STAGE}?)"
    r"(?:\+[0-9A-Za-z.-]+)?",
    re.IGNORECASE,
)
"""Hashes have no dot, and are longer than six digits."""


def order_of(text: str) -> "Version | None":
    """Return the value that orders a version; None if it has no order."""
    if len(text) > MAX_VERSION or not _ORDERED.fullmatch(text):
        return None

    from packaging.version import Version  # noqa: PLC0415 # few commands need it

    return Version(text.partition("+")[0])


def is_fixed(version: str, fixes: Iterable[str]) -> bool:
    """Return True if a version has the fix.

    The fix is in every version from the highest of `fixes` on. Each other one is a
    backport: it covers only its own release line. So 1.3.9 covers 1.3.10, not 1.4.0.
    """
    this = order_of(version)
    orders = map(order_of, fixes)
    known = sorted(order for order in orders if order is not None)

    if this is None or not known:
        return False
    if this >= known[-1]:
        return True

    return any(_is_covered(this, fix) for fix in known[:-1])


def _is_covered(this: "Version", backport: "Version") -> bool:
    """Return True if a version is of the release line of a backport, and not older."""
    if this < backport:
        return False

    line = backport.release[:-1]
    places = len(line)
    # A missing number counts as 0, so that 2 is of the release line of 2.0.1.
    padded = this.release + (0,) * places

    return padded[:places] == line


def fixed_among(versions: Iterable[str], fixes: Sequence[str]) -> str | None:
    """Return the lowest version that has the fix; None if none has."""
    found = [version for version in versions if is_fixed(version, fixes)]
    return min(found, key=_by_order, default=None)


def fixes_of(given: Sequence[str], failed_in: Iterable[str]) -> list[str]:
    """Return the versions with the fix, sorted.

    Args:
        given: versions as an operator writes them; spaces around them are ignored.
        failed_in: versions in which the group has failed.

    Raises:
        ValueError: a version has no order, there are too many, or the group has failed
            in a version that would have the fix.
    """
    texts = dict.fromkeys(text.strip() for text in given)
    count = len(texts)
    if not 1 <= count <= MAX_FIXES:
        msg = f"in: give 1 to {MAX_FIXES} versions, not {count}"
        raise ValueError(msg)

    fixes = sorted(texts, key=_by_order)
    if again := fixed_among(failed_in, fixes):
        msg = (
            f"in: the group has failed in {again} already; give a later version,"
            " or one version for each release line that has the fix"
        )
        raise ValueError(msg)

    return fixes


def _by_order(text: str) -> "tuple[Version, str]":
    """Return what sorts a version. Raises ValueError if it has no order."""
    order = order_of(text)
    if order is None:
        msg = (
            f"in: {text!r} has no order; write a version such as 1.4.2, 2026.11.24"
            " or 1.4.2-rc1, as the workers have in REDRIVE_VERSION"
        )
        raise ValueError(msg)

    return order, text


def state_of(group: Fields) -> str:
    """Return the state of a group: open, resolved or regressed."""
    if group["fixed_in"] is None:
        return "open"
    if group["regressed_at"] is None:
        return "resolved"

    return "regressed"


def worded(group: Fields) -> str:
    """Return the state of a group in words, such as `resolved in 1.4.2 (3 since)`."""
    state = state_of(group)
    if state == "open":
        return state
    if state == "regressed":
        return f"regressed in {group['regressed_in']}"

    failures = sum(group["since"].values())
    versions = ", ".join(group["fixed_in"])

    return f"resolved in {versions} ({failures} since)"
