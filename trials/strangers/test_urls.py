"""guerzon/vaultwarden #154, diesel-rs/diesel #3647, prisma/orm #10841.

A URL comes from a secret, an editor of Windows, or another library. It works, or the
error says which part to remove, without the password.
"""

from pathlib import Path

import pytest

from redrive.database.connections.address import Address
from redrive.errors import SettingsError
from tests.postgres import Database

URL = "postgresql://u:hunter2@h/d"


@pytest.mark.parametrize("before", ["", "\ufeff", " ", "\n"])
@pytest.mark.parametrize("after", ["", "\n", "\r\n", " \t\n\n"])
def test_blanks_around_a_url_are_no_part_of_it(
    database: Database, tmp_path: Path, before: str, after: str
) -> None:
    written = before + database.url + after
    file = tmp_path / "url"
    file.write_text(written, encoding="utf-8", newline="")
    for address in (Address(written), Address(file=file)):
        with address.connect("trial") as conn:
            assert conn.info.dbname == database.conn.info.dbname


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"{URL}?pgbouncer=true", "'pgbouncer'"),
        (f"{URL}?sslmode=require&connection_limit=5", "'connection_limit'"),
        (f"{URL}?schema=public", "'schema'"),
        ("host=h schema=public", "'schema'"),
        (URL.replace("://", "+psycopg://"), "remove '+psycopg'"),
        (URL.replace("postgresql", "postgres+asyncpg"), "remove '+asyncpg'"),
        (f"jdbc:{URL}", "must be a Postgres URL"),
        (f"'{URL}'", "must be a Postgres URL"),
    ],
)
def test_what_is_wrong_with_a_url_is_named_without_its_password(
    url: str, said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        Address(url).read()
    assert said in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_the_end_of_a_password_is_not_taken_for_a_parameter() -> None:
    with pytest.raises(SettingsError) as caught:
        Address("postgresql://h/d?password=hun&ter2=x").read()
    assert "ter2" not in str(caught.value)
