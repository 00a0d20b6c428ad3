"""Which versions have a fix: order, backports, and texts without an order."""

from typing import Any

import pytest

from redrive.dead_letters.groups.fixes import (
    fixed_among,
    fixes_of,
    is_fixed,
    order_of,
    worded,
)

ASCENDING = (
    "1.4.2.dev3",
    "1.4.2-alpha",
    "1.4.2-beta.2",
    "1.4.2-rc1",
    "1.4.2-rc.2",
    "v1.4.2",
    "1.4.2.post1",
    "1.4.10",
    "1.5-rc1",
    "1.5",
    "2026.11.24",
)
UNORDERED = (
    "",
    "latest",
    "main-3f2a91c",
    "3f2a91c",
    "1234567",
    "12a34",
    "123b456",
    "0123456789ab",
    "1.4.2-alpine",
    "1.4.2-4-g3f2a91c",
    "1.4.2-5",
    "1!1.4.2",
    "1..4",
    "1.4.x",
    "１.4.2",
    "1." + "9" * 130,
)


def test_versions_are_ordered_as_releases_are():
    orders = [order for text in ASCENDING if (order := order_of(text))]

    assert orders == sorted(orders)
    assert len(set(orders)) == len(ASCENDING)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("1.4.2", "v1.4.2"),
        ("1.4.2", "1.4.2+build.7"),
        ("1.4", "1.4.0"),
        ("417", "v417"),
    ],
)
def test_some_texts_are_one_version(one: str, same: str):
    assert order_of(one) == order_of(same)


@pytest.mark.parametrize("text", UNORDERED)
def test_a_text_without_an_order_is_never_fixed_and_cannot_be_a_fix(text: str):
    assert order_of(text) is None
    assert not is_fixed(text, ["0.1"])
    with pytest.raises(ValueError, match="has no order"):
        fixes_of([text or "?"], [])


FIXED = (
    (["1.4.2"], "1.4.2", True),
    (["1.4.2"], "1.4.2-rc1", False),
    (["1.4.2-rc1"], "1.4.2-rc1", True),
    (["1.4.2"], "1.4.1", False),
    (["1.4.2"], "1.10.0", True),
    (["1.4.2", "1.3.9"], "1.3.8", False),
    (["1.4.2", "1.3.9"], "1.3.9", True),
    (["1.4.2", "1.3.9"], "1.3.10", True),
    (["1.4.2", "1.3.9"], "1.4", False),
    (["1.4.2", "1.3.9"], "1.4.0", False),
    (["1.4.2", "1.3.9"], "1.4.1", False),
    (["1.4.2", "1.3.9"], "1.4.2", True),
    (["1.4.2", "1.3.9"], "2.0", True),
    (["2.1", "1.4.2", "1.3.9"], "2.0", False),
    (["2.1", "1.4.2", "1.3.9"], "1.5.0", False),
    (["2026.11.24"], "2026.9.30", False),
)


@pytest.mark.parametrize(("fixes", "version", "fixed"), FIXED)
def test_a_backport_covers_its_own_release_line(
    fixes: list[str], version: str, fixed: bool
):
    assert is_fixed(version, fixes) is fixed
    assert is_fixed(version, fixes[::-1]) is fixed


def test_the_lowest_version_with_the_fix_is_named():
    died_in = ["", "1.4.1", "1.10.0", "1.4.3", "3f2a91c"]

    assert fixed_among(died_in, ["1.4.2"]) == "1.4.3"
    assert fixed_among(died_in, ["1.11"]) is None


def test_a_version_that_has_died_cannot_have_the_fix():
    assert fixes_of(["1.4.2", " 1.3.9"], ["1.4.1", "3f2a91c"]) == ["1.3.9", "1.4.2"]
    with pytest.raises(
        ValueError, match=r"in: the group has failed in 1\.4\.3 already"
    ):
        fixes_of(["1.4.2"], ["1.4.3"])
    with pytest.raises(ValueError, match="in: give 1 to 20 versions, not 0"):
        fixes_of([], [])


def test_the_state_is_told_in_words():
    known = ("fixed_in", "regressed_at", "regressed_in")
    group: dict[str, Any] = dict.fromkeys(known) | {"since": {}}
    fixed = group | {"fixed_in": ["1.3.9", "1.4.2"], "since": {"1.4.1": 2, "": 1}}

    assert worded(group) == "open"
    assert worded(fixed) == "resolved in 1.3.9, 1.4.2 (3 since)"
    assert worded(fixed | {"regressed_in": "1.4.3", "regressed_at": 1}) == (
        "regressed in 1.4.3"
    )
