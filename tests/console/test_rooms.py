"""Places for the requests of each person."""

from redrive.database.connections.address import Address
from redrive.extras.console.security.access import Role
from redrive.extras.console.security.logins import Logins
from tests.postgres import Database


def test_a_person_who_has_left_costs_no_memory(database: Database) -> None:
    logins = Logins({Role.VIEWER: Address(database.url)})
    inside = 0
    for n in range(50):
        with logins.reading(Role.VIEWER, f"oidc:{n}@corp"):
            inside = len(logins._rooms)  # pyright: ignore[reportPrivateUsage]

    logins.close()
    assert inside == 3  # asked, the person's, and the role's
    assert len(logins._rooms) == 0  # pyright: ignore[reportPrivateUsage]
