"""Pages of dead letters and jobs cost what they look at, and hold each once, in order."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import find
from redrive.extras.console import job_pages as live
from redrive.extras.console import letter_pages as pages
from redrive.jobs.filter import JobFilter
from tests.factories import make_dead_letters, make_job, make_jobs
from tests.postgres import Database
from tests.sql.test_bystanders_groups import deltas
from tests.sql.test_pages import READ, fill

NOW = datetime(2026, 3, 1, tzinfo=UTC)
_VARIED = """
    update redrive.dead_letters d
    set died_at = %s::timestamptz - d.id %% 7 * interval '1 minute',
        state = case when d.id %% 3 = 0 then 'dismissed' else 'open' end,
        tenant = case when d.id %% 11 = 0 then 'rare' end, fingerprint = 'f' || d.id %% 4"""
"""Several at one instant, too: a place in the list is an instant and an id."""


@pytest.fixture
def letters(database: Database) -> Database:
    """Dead letters of every sort."""
    make_dead_letters(database.conn, 60)
    make_dead_letters(database.conn, 30, kind="mail.send", queue="mail")
    database.conn.execute(_VARIED, (NOW,))
    deltas(database, "f0", "f1", "f2", "f3")
    return database


def walked(letters: Database, chosen: Filter) -> Iterator[int]:
    """The ids on all pages of a filter, each page of one look."""
    place = None
    while True:
        page = pages.page(letters.conn, chosen, place, most=4, seconds=0)
        yield from (row["id"] for row in page.rows)
        if page.place is None:
            return
        assert place is None or page.place < place
        place = page.place


FILTERS = (
    Filter(),
    Filter(state=("open",)),
    Filter(state=("open",), kind=("mail.send",)),
    Filter(state=("open",), kind=("mail.send", "invoice.charge"), tenant=("rare",)),
    Filter(state=("open",), queue=("mail",), error_class=("ValueError",)),
    Filter(state=("open",), group="f"),
    Filter(group="f1", tenant=("rare",)),
    Filter(group="f9"),
    Filter(kind=("mail.send",), state=("dismissed",)),
    Filter(since=NOW - timedelta(minutes=4), until=NOW - timedelta(minutes=1)),
    Filter(state=("open",), tenant=("nobody",)),
)


def test_each_dead_letter_is_on_one_page(
    letters: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pages, "FIRST_LOOKS", 3)

    for chosen in FILTERS:
        expected = [row["id"] for row in find(letters.conn, chosen)]
        assert list(walked(letters, chosen)) == expected, chosen


NOBODY = {"state": ("open",), "tenant": ("nobody",)}


@pytest.mark.parametrize(
    "chosen",
    [
        Filter(**NOBODY),
        Filter(**NOBODY, kind=("invoice.charge",)),
        Filter(**NOBODY, queue=("default",)),
        Filter(**NOBODY, group="f1"),
        Filter(tenant=("nobody",), until=NOW),
    ],
)
def test_a_page_looks_at_few_however_few_match(
    database: Database, monkeypatch: pytest.MonkeyPatch, chosen: Filter
):
    """It was read to its end by a filter that matches nothing: eight seconds at a million."""
    monkeypatch.setattr(pages, "FIRST_LOOKS", 50)
    make_dead_letters(database.conn, 1)
    fill(database, 3000)
    database.rows("vacuum analyze redrive.dead_letters")
    session = database.session()
    with session.conn.transaction():
        found = pages.page(session.conn, chosen, None, most=10, seconds=0)
        read = session.value(READ)

    assert found.rows == []
    assert read <= 150


def test_the_jobs_of_a_key_are_found_behind_any_number(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """Indexes know them: nobody walks over the others for them."""
    monkeypatch.setattr(live, "FIRST_LOOKS", 1)
    make_jobs(database.conn, 50)
    last = [
        make_job(database.conn, "mail.send", ordering_key="a"),
        make_job(database.conn, "mail.send", ordering_key="a", queue="mail"),
        make_job(database.conn, "mail.send", idempotency_key="b"),
    ]

    def found(**chosen: Sequence[str]) -> list[int]:
        page = live.page(database.conn, JobFilter(**chosen), None, most=10, seconds=0)
        assert page.place is None
        return sorted(row["id"] for row in page.rows)

    assert found(ordering_key=["a"]) == last[:2]
    assert found(key=["b"]) == last[2:]
    assert found(ordering_key=["a"], queue=["mail"]) == last[1:2]
    assert found(kind=["no.such"]) == []
