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
