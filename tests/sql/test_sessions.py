"""Sessions of the console that ended: known for as long as they could last, and never too many."""

from tests.postgres import Database

END = "select redrive.end_session_v1(%s)"


def test_a_session_that_ended_is_known_for_a_day(database: Database) -> None:
    """The next one that ends takes it along; one that ends twice has ended."""
    database.rows(
        "insert into redrive.ended_sessions values"
        " ('old', now() - interval '25 h'), ('long', now() - interval '23 h')"
    )
    viewer = database.session("redrive_viewer")
    for _ in range(2):
        viewer.rows(END, "new")

    assert viewer.column("select session from redrive.ended_sessions order by 1") == [
        "long",
        "new",
    ]


def test_a_viewer_cannot_fill_the_table(database: Database) -> None:
    database.rows("insert into redrive.ended_sessions select generate_series(1, 10000)")
    database.rows(END, "one more")

    assert database.value("select count(*) from redrive.ended_sessions") == 10_000


def test_one_login_does_not_use_up_what_another_may_end(database: Database) -> None:
    """S25: a viewer ended 10,000 sessions, and for a day nobody could sign out."""
    viewer = database.session()
    viewer.rows("set session authorization redrive_viewer")
    database.rows(
        "insert into redrive.ended_sessions (session, login)"
        " select generate_series(1, 10000), 'redrive_viewer'"
    )
    viewer.rows(END, "one more")
    database.rows(END, "mine")

    assert database.column(
        "select session from redrive.ended_sessions where session !~ '^[0-9]+$'"
    ) == ["mine"]
