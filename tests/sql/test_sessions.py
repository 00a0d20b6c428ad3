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
    viewer = database.login("redrive_viewer")
    database.rows(
        "insert into redrive.ended_sessions (session, login)"
        " select generate_series(1, 10000), 'redrive_viewer'"
    )
    viewer.rows(END, "one more")
    database.rows(END, "mine")

    assert database.column(
        "select session from redrive.ended_sessions where session !~ '^[0-9]+$'"
    ) == ["mine"]


def test_one_person_does_not_use_up_what_another_may_end(database: Database) -> None:
    """All sign-outs of a console are made by one login; a copied cookie worked for two hours."""
    operator = database.login("redrive_operator")
    database.rows(
        "insert into redrive.ended_sessions (session, login)"
        " select 'ada.' || n, 'redrive_operator' from generate_series(1, 12000) n"
    )
    operator.rows(END, "ada.one more")
    operator.rows(END, "bo.mine")

    assert database.column(
        "select session from redrive.ended_sessions where session !~ '[0-9]+$'"
    ) == ["bo.mine"]
