"""Thousands of queues and kinds: a scrape stays small, nothing goes uncounted, no counter jumps."""

import re
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redrive.observability.metrics import Exposition
from redrive.observability.stats import DatabaseStats
from tests.postgres import Database

EVENTS = "array['enqueued', 'claimed', 'completed', 'dead', 'redriven']"
FILL = f"""
insert into redrive.tallies (queue, kind, event, reason, n)
select %s || q, 'kind' || k, e,
       case when e in ('dead', 'redriven') then 'expired' else '' end,
       case e when 'dead' then 3 else 1 end
from generate_series(1, %s) q, generate_series(1, %s) k, unnest({EVENTS}) e
on conflict (queue, kind, event, reason) do update set n = redrive.tallies.n + excluded.n
"""
ADDED = re.compile(
    r'^redrive_dlq_added_total\{kind="(.*)",queue="(.*)",reason="(.*)"\} (.*)$',
    re.MULTILINE,
)


@pytest.fixture
def scrape(database: Database) -> Iterator[Callable[[], str]]:
    """What the exporter shows, of a snapshot that is new each time."""
    stats = DatabaseStats(database.url)

    def read() -> str:
        database.rows("update redrive.snapshots set taken_at = '-infinity'")
        stats._fresh_until = float("-inf")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(stats)
        return generate_latest(registry).decode()

    yield read
    stats.link.close()


def added(text: str) -> dict[str, float]:
    """Dead letters added, by queue."""
    found: dict[str, float] = {}
    for _, queue, _, value in ADDED.findall(text):
        found[queue] = found.get(queue, 0) + float(value)
    return found


def value(text: str, series: str) -> float:
    """The value of one series."""
    (found,) = re.findall(rf"^{re.escape(series)} (.*)$", text, re.MULTILINE)
    return float(found)


def test_three_thousand_queues_are_a_small_scrape_that_leaves_nothing_out(
    database: Database, scrape: Callable[[], str]
) -> None:
    """They were 120,000 series and 8.5 MB; 20,000 queues were 57 MB."""
    database.rows(FILL, "tenant-", 3000, 1)
    database.rows("select redrive.pause_v1('tenant-2999', 'test', 'it is one of many')")

    text = scrape()

    assert len(text) < 2_000_000
    assert len([line for line in text.splitlines() if line[0] != "#"]) < 25_000
    assert len(added(text)) == 1_001
    assert sum(added(text).values()) == 9_000
    assert value(text, 'redrive_dlq_depth{queue="other",reason="expired"}') == 4_000
    assert value(text, 'redrive_queue_depth{queue="other",state="running"}') == 0
    assert 'redrive_queue_paused{queue="other"}' not in text, "one of them is"


def test_many_kinds_on_many_queues_are_bounded_too(
    database: Database, scrape: Callable[[], str]
) -> None:
    """Queues times kinds, each with counters of its own."""
    database.rows(FILL, "tenant-", 300, 15)

    text = scrape()

    pairs = {(queue, kind) for kind, queue, _, _ in ADDED.findall(text)}
    assert len({pair for pair in pairs if pair[1] != "other"}) == 3_000
    assert len(pairs) <= 3_300
    assert sum(added(text).values()) == 300 * 15 * 3
    assert len(text) < 2_000_000


def test_a_thousand_queues_with_forty_kinds_are_a_small_scrape(
    database: Database, scrape: Callable[[], str]
) -> None:
    """A third of 21,000 samples were defaults of objectives, repeated for each queue."""
    database.rows(FILL, "tenant-", 1000, 1)
    of_queue = "'kind' || substring(queue from 8)::int % 40"
    database.rows(f"update redrive.tallies set kind = {of_queue} where kind = 'kind1'")
    families: dict[str, int] = {}
    for line in scrape().splitlines():
        if line[0] != "#":
            name = line.partition("{")[0].partition(" ")[0]
            families[name] = families.get(name, 0) + 1

    assert 0 < families["redrive_queue_objective"] < 10
    assert sum(families.values()) < 12_000, sorted(
        families.items(), key=lambda f: -f[1]
    )[:14]


def test_a_queue_that_is_told_apart_stays_so_when_fuller_ones_come(
    database: Database, scrape: Callable[[], str]
) -> None:
    """Were it folded, `other` would rise by all that it ever counted, and page."""
    database.rows(FILL, "early-", 990, 1)
    scrape()
    database.rows(FILL, "late-", 500, 1)
    database.rows(
        "update redrive.tallies set n = n + 1000 where queue ~ 'late' and event ~ 'enq'"
    )
    text = scrape()

    assert len([queue for queue in added(text) if queue.startswith("early")]) == 990
    assert len([queue for queue in added(text) if queue.startswith("late")]) == 10
    assert added(text)["other"] == 490 * 3


def test_a_queue_that_gets_an_objective_is_told_apart_and_no_counter_jumps(
    database: Database, scrape: Callable[[], str]
) -> None:
    """Its whole past would read as growth, and page, and that of `other` would step down."""
    database.rows(FILL, "tenant-", 1500, 1)
    text = scrape()
    hidden = min({f"tenant-{n}" for n in range(1, 1501)} - set(added(text)))
    before = added(text)["other"]
    chosen = "select redrive.set_objective_v1(%s, 'page_on_first_dead_letter', 1, 'test', 'money')"
    database.rows(chosen, hidden)

    text = scrape()

    assert added(text)[hidden] == 0
    assert added(text)["other"] == before
    assert value(text, f'redrive_dlq_depth{{queue="{hidden}",reason="expired"}}') == 2
    assert value(text, 'redrive_dlq_depth{queue="other",reason="expired"}') == 499 * 2

    database.rows(
        "update redrive.tallies set n = n + 5 where queue = %s and event = 'dead'",
        hidden,
    )
    text = scrape()

    assert added(text)[hidden] == 5
    assert added(text)["other"] == before
    assert sum(added(text).values()) == 1500 * 3 + 5


def test_a_critical_queue_is_told_apart_from_its_first_dead_letter_on(
    database: Database, scrape: Callable[[], str]
) -> None:
    """A flood of others cannot hide it; nor is its first one taken for something past."""
    database.rows(
        "select redrive.set_objective_v1('pay', 'page_on_first_dead_letter', 1, 'test', 'money')"
    )
    database.rows(FILL, "tenant-", 1500, 1)
    scrape()
    database.rows(FILL, "pay", 1, 1)
    database.rows("update redrive.tallies set queue = 'pay' where queue = 'pay1'")

    assert added(scrape())["pay"] == 3


def test_a_kind_that_gets_an_objective_is_told_apart_and_has_an_owner(
    database: Database, scrape: Callable[[], str]
) -> None:
    """Among 600 kinds, too; the alert of the kind needs its own counter."""
    database.rows(FILL, "pay", 1, 600)
    first = scrape()
    shown = {kind for kind, *_ in ADDED.findall(first)}
    hidden = min({f"kind{n}" for n in range(1, 601)} - shown)
    database.rows(
        "select redrive.set_objective_v2('pay1', %s, 'dlq_added_5m', 3, 'ada', 'why')",
        hidden,
    )
    database.rows("select redrive.set_owner_v1('pay1', '*', 'money', null, 'a', 'b')")
    database.rows(
        "select redrive.set_owner_v1('*', %s, 'cards', null, 'a', 'b')", hidden
    )

    text = scrape()

    assert added(text)["pay1"] == added(first)["pay1"] == 1800
    assert hidden in {kind for kind, *_ in ADDED.findall(text)}
    labels = f'kind="{hidden}",objective="dlq_added_5m",queue="pay1"'
    assert value(text, f"redrive_kind_objective{{{labels}}}") == 3
    owner = f'kind="{hidden}",owner="cards",queue="pay1"'
    assert value(text, f"redrive_owner{{{owner}}}") == 1
    assert value(text, 'redrive_owner{kind="",owner="money",queue="pay1"}') == 1
    assert text.count("redrive_owner{") == 2


def test_a_few_queues_show_at_0_what_has_not_happened_and_many_only_what_has(
    database: Database, scrape: Callable[[], str]
) -> None:
    """Nine reasons of each kind were shown, whatever their number."""
    database.rows(FILL, "tenant-", 500, 1)
    assert len(ADDED.findall(scrape())) > 500

    database.rows(FILL, "tenant-", 501, 1)
    text = scrape()

    assert len(ADDED.findall(text)) == 501
    assert (
        value(text, 'redrive_jobs_completed_total{kind="kind1",queue="tenant-501"}')
        == 1
    )


def test_every_process_says_what_it_is_and_what_it_takes() -> None:
    """An exporter had neither build_info nor process_*; no process had process_*."""
    text = generate_latest(Exposition(None).registry).decode()

    assert 'redrive_build_info{python_version="' in text
    assert value(text, "process_resident_memory_bytes") > 1_000_000
    assert value(text, "process_open_fds") > 0
    assert "process_cpu_seconds_total" in text


def test_failing_jobs_of_many_kinds_are_bounded_and_none_goes_uncounted(
    database: Database, scrape: Callable[[], str]
) -> None:
    """The main causes of 200 kinds are named, and all jobs are counted."""
    database.rows(FILL, "tenant-", 300, 15)
    database.rows(
        "insert into redrive.jobs (queue, kind, run_at, failed_at, fingerprint, streak)"
        " select 'tenant-' || q, 'kind' || k, now() + '1 h', now(), 'f' || q, 1"
        " from generate_series(1, 300) q, generate_series(1, 15) k"
    )
    database.rows(
        "insert into redrive.failures (job, deliveries, attempt, category, fingerprint,"
        " error_class, message)"
        " select id, 1, 1, 'transient', fingerprint, 'E', '' from redrive.jobs"
    )

    text = scrape()

    jobs = re.findall(
        r'^redrive_failing_jobs\{category="transient",kind="(.*)",queue="(.*)"\} (.*)$',
        text,
        re.MULTILINE,
    )
    assert len({(queue, kind) for kind, queue, _ in jobs if kind != "other"}) == 3_000
    assert len(jobs) <= 3_300
    assert sum(float(n) for *_, n in jobs) == 300 * 15
    assert text.count("redrive_failing_since_timestamp_seconds{") == 200
    assert len(text) < 2_000_000
