"""One campaign over several cells: its start, its drivers, and its commands."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from redrive.dead_letters.campaigns import campaign
from redrive.dead_letters.campaigns import together as driver
from redrive.dead_letters.campaigns.together import Together
from redrive.dead_letters.filter import Filter
from redrive.rules.dead_letters.obstacles import Allow
from redrive.rules.dead_letters.terms import Terms
from redrive.rules.dead_letters.together import is_over
from tests.cli.conftest import Ran, Redrive
from tests.cli.test_cells import GONE, written
from tests.factories import bury, claim, complete, make_dead_letters, make_worker
from tests.postgres import Database, Server, connect

SIZES = {"eu": 40, "us": 20, "ap": 10}


class Cells:
    """Three databases, and workers of them that run when a test says so."""

    def __init__(self, of: dict[str, Database]) -> None:
        self.of = of
        self.away = set[str]()
        self.workers = {name: make_worker(d.conn) for name, d in of.items()}

    @property
    def openings(self) -> driver.Cells:
        return {
            name: partial(connect, GONE if name in self.away else database.url)
            for name, database in self.of.items()
        }

    def fill(self, kind: str, **sizes: int) -> None:
        for name, size in (SIZES | sizes).items():
            make_dead_letters(self.of[name].conn, size, kind=kind)

    def start(self, kind: str, rate: float | None = None) -> Together:
        chosen = Filter(kind=(kind,))
        plans = driver.preview(self.openings, chosen, Allow())
        counts = {
            name: plans.found[name].matched if name in plans.found else None
            for name in self.of
        }
        terms = Terms(rate)
        leader = driver.start(
            self.openings, chosen, counts, terms, actor="ada", why="fixed"
        )
        assert leader is not None
        assert driver.find(self.openings, chosen, Allow()) == leader
        return self.another(leader)

    def another(self, leader: str) -> Together:
        """Another driver, which knows nothing but the id."""
        cell, _, number = leader.partition(":")
        return Together(self.openings, cell, int(number), "bob")

    def work(self, *failing: str) -> None:
        """Run what is due; jobs of failing cells die again."""
        for name, database in self.of.items():
            worker = self.workers[name]
            while jobs := claim(database.conn, worker, 1000):
                if name in failing:
                    for job in jobs:
                        bury(database.conn, worker, job)
                else:
                    complete(database.conn, worker, *jobs)

    def drive(self, led: Together, until: Callable[[dict[str, str]], bool]) -> None:
        for _ in range(1000):
            if until(states(led)):
                return
            led.drive()
            self.work()
        raise AssertionError(states(led))


def states(led: Together) -> dict[str, str]:
    return {c: m.state.value for c, m in led.look().seen.started.items()}


@pytest.fixture
def cells(server: Server) -> Iterator[Cells]:
    with contextlib.ExitStack() as stack:
        yield Cells({name: stack.enter_context(server.database()) for name in SIZES})


@pytest.fixture
def at(redrive: Redrive, cells: Cells, tmp_path: Path) -> Callable[..., Ran]:
    def run(*arguments: str, **environment: str) -> Ran:
        urls = {
            name: GONE if name in cells.away else database.url
            for name, database in cells.of.items()
        }
        path = written(tmp_path, urls)
        return redrive(*arguments, REDRIVE_DATABASES=path, COLUMNS="160", **environment)

    return run


def rows(cells: Cells, query: Any) -> dict[str, list[tuple[Any, ...]]]:
    return {name: database.rows(query) for name, database in cells.of.items()}


def test_all_cells_end_and_their_rates_are_the_whole_rate(cells: Cells) -> None:
    cells.fill("a")
    led = cells.start("a", rate=7000.0)
    shown = led.drive()
    assert states(led) == {"eu": "canary"}
    assert shown.seen.members == {"eu": shown.seen.leading, "us": None, "ap": None}

    cells.drive(led, lambda found: len(found) == 3)
    rates = rows(cells, "select rate, canaries from redrive.campaigns")
    assert rates == {"eu": [(4000, 3)], "us": [(2000, 1)], "ap": [(1000, 1)]}
    cells.drive(led, lambda found: set(found.values()) == {"done"})

    assert is_over(led.look().seen)
    left = "select state, outcome, count(*) from redrive.dead_letters group by 1, 2"
    assert rows(cells, left) == {
        name: [("resolved", "succeeded", size)] for name, size in SIZES.items()
    }
    audit = "select actor, why, detail -> 'conditions' ->> 'leader' from redrive.audit where action = 'redrive'"
    assert rows(cells, audit) == {
        "eu": [("ada", "fixed", None)],
        "us": [("bob", "with eu:1: fixed", "eu:1")],
        "ap": [("bob", "with eu:1: fixed", "eu:1")],
    }


def test_a_cause_that_is_not_fixed_costs_three_jobs(cells: Cells) -> None:
    cells.fill("a")
    led = cells.start("a")
    while not is_over(led.look().seen):
        led.drive()
        cells.work("eu", "us", "ap")

    assert states(led) == {"eu": "aborted"}
    again = "select count(*) from redrive.dead_letters where deliveries > 1"
    assert rows(cells, again) == {"eu": [(3,)], "us": [(0,)], "ap": [(0,)]}


def test_a_cell_whose_workers_have_the_old_version_stops_all(cells: Cells) -> None:
    cells.fill("a", eu=4000)
    led = cells.start("a", rate=500.0)
    cells.drive(led, lambda found: len(found) == 3)
    for _ in range(1000):
        led.drive()
        cells.work("us")
        if is_over(led.look().seen):
            break

    found = led.look().campaigns
    assert {c: row["state"] for c, row in found.items()} == {
        "eu": "paused",
        "us": "aborted",
        "ap": "paused",
    }
    assert found["us"]["redriven"] == 1
    assert found["eu"]["said"] == "us:1 aborted: 1 of 1 died again, more than 10%"
    assert found["ap"]["said"].startswith("with eu:1: us:1 aborted")
    led.resume("they run 1.4.2, too")
    assert set(states(led).values()) == {"waiting", "paused"}
    cells.drive(led, lambda found: found["us"] in {"ramp", "running", "done"})


def test_a_cell_that_is_away_joins_later_with_its_share(
    at: Callable[..., Ran], cells: Cells
) -> None:
    cells.fill("a")
    cells.away = {"us"}
    led = cells.start("a", rate=7500.0)
    cells.drive(led, lambda found: [*found.values()] == ["done", "done"])
    view = led.drive()
    assert not is_over(view.seen)
    assert set(view.away) == {"us"}
    assert at("campaign", "watch", "eu:1", "--without", "us").code == 0

    cells.away = set()
    led = cells.another(led.leader)
    cells.drive(led, lambda found: [*found.values()] == ["done"] * 3)
    rates = rows(cells, "select rate from redrive.campaigns")
    assert rates == {"eu": [(4000,)], "us": [(2500,)], "ap": [(1000,)]}


def test_a_cell_is_paused_and_cancelled_after_the_leader_is_done(cells: Cells) -> None:
    cells.fill("a")
    cells.away = {"us"}
    led = cells.start("a")
    cells.drive(led, lambda found: [*found.values()] == ["done", "done"])
    cells.away = set()
    led = cells.another(led.leader)
    led.settle()
    led.pause("the bank asks us")
    led.drive()

    assert states(led) == {"eu": "done", "ap": "done", "us": "paused"}
    led.resume("the bank is ready")
    assert states(led)["us"] == "waiting"
    led.cancel("wrong filter")
    assert states(led)["us"] == "cancelled"
    whys = "select action, why from redrive.audit where action like '%% redrive' order by id"
    assert ("pause redrive", "eu:1: the bank asks us") in rows(cells, whys)["us"]


def test_a_cell_that_returns_without_any_ends_it(cells: Cells) -> None:
    for name in ("eu", "ap"):
        make_dead_letters(cells.of[name].conn, 10, kind="a")
    cells.away = {"us"}
    led = cells.start("a")
    cells.away = set()
    led = cells.another(led.leader)
    cells.drive(led, lambda _: is_over(led.look().seen))

    assert states(led) == {"ap": "done", "eu": "done", "us": "done"}
    assert rows(cells, "select count(*) from redrive.campaigns")["us"] == [(0,)]


CHANGES = ("pause", "resume", "cancel")


def test_each_order_of_changes_and_kills_ends_in_one_state(cells: Cells) -> None:
    """After a change, or one that was killed after the leader, the next driver makes all match it."""
    for n, order in enumerate(product(CHANGES, repeat=2)):
        ends = list[dict[str, str]]()
        for is_killed in (False, True):
            kind = f"k{n}-{is_killed:d}"
            cells.fill(kind, eu=10, us=8, ap=6)
            led = cells.start(kind)
            cells.drive(led, lambda found: len(found) == 3)
            for change in order:
                with contextlib.suppress(Exception):  # resume what is not paused
                    if is_killed:
                        _kill_after_leader(cells, led, change)
                    else:
                        getattr(cells.another(led.leader), change)("w")
                cells.another(led.leader).settle()
            found = states(led)
            going = found["eu"] not in {"paused", "cancelled"}
            ends.append(found if not going else {"eu": "going"})
            assert len({*found.values()} - {"done"}) == 1 or going, (order, found)
            with contextlib.suppress(Exception):
                led.cancel("over")
        assert ends[0] == ends[1], order


def _kill_after_leader(cells: Cells, led: Together, change: str) -> None:
    """Do as a command does that is killed after it changed the leader."""
    with connect(cells.of[led.cell].url) as conn:
        getattr(campaign, change)(conn, led.campaign, actor="ada", why="w")


def test_two_drivers_at_once_start_each_cell_once(cells: Cells) -> None:
    cells.fill("a")
    led = cells.start("a")
    led.drive()
    cells.work()
    led.drive()
    for name in ("us", "ap"):
        cells.of[name].rows("delete from redrive.campaigns")
    drivers = [
        threading.Thread(target=cells.another(led.leader).settle) for _ in range(4)
    ]
    for one in drivers:
        one.start()
    for one in drivers:
        one.join()

    count = "select count(*) from redrive.campaigns"
    assert rows(cells, count) == {name: [(1,)] for name in SIZES}


def test_the_plan_says_who_leads_and_the_shares(
    at: Callable[..., Ran], cells: Cells
) -> None:
    cells.fill("a")
    ran = at("campaign", "together", "--kind", "a", "--rate", "7", "--dry-run")

    assert ran.code == 0, ran.err
    assert "eu: 40 open dead letters, 4 per second\n" in ran.out
    assert "eu leads: its 3 canaries go first\n" in ran.out
    asked = at("campaign", "together", "--kind", "a", "--why", "fixed")
    assert "--yes" in asked.out
    few = at("campaign", "together", "--kind", "a", "--without", "eu", "--dry-run").out
    assert "us leads" in few
    nothing = at("campaign", "together", "--kind", "b", "--dry-run")
    assert (nothing.code, nothing.out) == (0, "nothing matched\n")
    cells.away = set(SIZES)
    assert at("campaign", "together", "--kind", "a", "--dry-run").code == 69
    cells.away = set()
    assert rows(cells, "select count(*) from redrive.campaigns") == {
        name: [(0,)] for name in SIZES
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--id 17", "an id belongs to one cell"),
        ("--limit 5 --all", "--limit is for one cell"),
        ("--rate 5", "give a filter, or --all"),
        ("--all --without sa", "there are: eu, us, ap"),
        ("--all --yes", "--why is missing"),
    ],
)
def test_what_has_no_meaning_is_refused(
    at: Callable[..., Ran], arguments: str, says: str
) -> None:
    ran = at("campaign", "together", *arguments.split())

    assert ran.code == 64
    assert says in ran.err


def test_without_cells_it_names_the_variable(redrive: Redrive) -> None:
    ran = redrive("campaign", "together", "--all")

    assert ran.code == 64
    assert "set REDRIVE_DATABASES to the file of all cells" in ran.err


def test_the_commands_of_the_leader_are_for_all_cells(
    at: Callable[..., Ran], cells: Cells
) -> None:
    cells.fill("a", eu=400, us=300, ap=200)
    led = cells.start("a", rate=90.0)
    cells.drive(led, lambda found: len(found) == 3)
    why = ("--why", "the bank asks us", "--yes")

    paused = at("campaign", "pause", "eu:1", *why, "--json").json
    assert {c: row["state"] for c, row in paused["cells"].items()} == dict.fromkeys(
        SIZES, "paused"
    )
    assert paused["cells"]["us"]["said"] == "with eu:1: the bank asks us"
    watched = at("campaign", "watch", "eu:1")
    assert watched.code == 1
    assert "us:1" in watched.out
    resumed = at("campaign", "resume", "eu:1", *why, "--json").json
    assert resumed["cells"]["eu"]["state"] in {"waiting", "canary"}
    assert resumed["cells"]["us"]["state"] == "paused"
    cells.drive(led, lambda found: found["us"] not in {"paused", "waiting"})
    cells.away = {"ap"}
    shown = at("campaign", "show", "eu:1")
    assert (shown.code, "ap" in shown.out) == (69, True)
    assert "redrive: cell ap: the database cannot be reached" in shown.err
    again = at("campaign", "together", "--kind", "a")
    assert "campaign eu:1 has this filter already" in again.err
    leaves_out = at("campaign", "watch", "eu:1", "--without", "eu")
    assert leaves_out.code == 64
    assert "eu:1 leads the campaign" in leaves_out.err
    cells.away = {"eu"}
    chosen = Filter(kind=("a",))
    assert driver.find(cells.openings, chosen, Allow()) == "eu:1"
    cells.away = set()
    cancelled = at("campaign", "cancel", "eu:1", *why, "--json").json
    assert {row["state"] for row in cancelled["cells"].values()} == {"cancelled"}
