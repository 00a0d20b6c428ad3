"""Which kinds a worker handles, from what it said of itself."""

import pytest

from redrive.handlers import matching
from tests.postgres import Database

KINDS = ("mail.send", "mailer", "a_b", "m")
HANDLED = (
    ("mail.send",),
    ("mail.*", "a_b"),
    ("a_*",),
    ("*",),
    (),
    ("axb",),
    ("mail*", "m"),
)


@pytest.mark.parametrize("kinds", HANDLED, ids=" ".join)
def test_the_database_matches_kinds_as_a_registry_does(
    database: Database, kinds: tuple[str, ...]
) -> None:
    prefixes = [kind for kind in kinds if kind.endswith("*")]

    for kind in KINDS:
        matched = database.value(
            "select redrive.handles_v1(%s::text[], %s)", list(kinds), kind
        )

        assert matched == (matching(kind, kinds, prefixes) is not None), kind
