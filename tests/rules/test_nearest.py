"""What is said of a name that is not known."""

import pytest

from redrive.rules.nearest import nearest, nearest_or_all

KNOWN = {"kind": 1, "queue": 2, "tenant": 3}


@pytest.mark.parametrize(
    ("name", "meant"), [("knid", "kind"), ("tenants", "tenant"), ("x", None)]
)
def test_the_nearest_of_names_is_the_one_that_is_like_it(
    name: str, meant: str | None
) -> None:
    assert nearest(name, KNOWN) == nearest(name, iter(KNOWN)) == meant


def test_where_no_name_is_near_all_are_listed() -> None:
    assert nearest_or_all("tenants", iter(KNOWN)) == "did you mean 'tenant'?"
    assert nearest_or_all("x", iter(KNOWN)) == "known are kind, queue, tenant"
