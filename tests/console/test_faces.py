"""Each verb asks first, wants a reason, and is audited alike on each face.

The command line, a form of the console and the JSON API render one declaration. The
command is that of the preview. Agents propose some verbs, and a person makes them.
"""

import json
import shlex
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from redrive.cli.main import main
from redrive.database.connections.address import Address
from redrive.dead_letters import triage
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.extras.agents.arguments import ACTIONS
from redrive.extras.agents.desk import Budget, Desk
from redrive.extras.proposals.store import Agent
from redrive.verbs.registry import VERBS
from redrive.verbs.verb import Order
from tests.console.conftest import Site, csrf
from tests.factories import make_dead_letter, make_job, make_schedule


class Sample(NamedTuple):
    """A verb on the rows of `prepared`: its selection, its inputs and its audit line."""

    query: Mapping[str, str]
    action: str
    more: Mapping[str, str] = {}
    first: tuple[str, ...] = ()
    """Statements that must come before."""


BREAKER = "select redrive.breakers_v1('{smtp}', '{0}', '{1}', '{5}', '{60}', '{60}')"
GROUP = {"group": "GROUP"}
PATCH = '[{"op": "add", "path": "/n", "value": 1}]'
FAILS = (
    "insert into redrive.jobs (kind, run_at, failed_at, fingerprint, streak)"
    " values ('a.b', now() + '1 h', now(), 'f1', 1)"
)
SAMPLES: Mapping[str, Sample] = {
    "dismiss": Sample({"id": "DEAD"}, "dismiss"),
    "reopen": Sample({"id": "GONE"}, "reopen"),
    "assign": Sample({"id": "DEAD"}, "assign", {"owner": "bo"}),
    "edit": Sample({"id": "DEAD"}, "edit", {"patch": PATCH}),
    "cancel": Sample({"id": "LATER"}, "cancel"),
    "now": Sample({"id": "LATER"}, "run now"),
    "reveal": Sample({"id": "DEAD"}, "reveal"),
    "pause": Sample({"queue": "default"}, "pause"),
    "resume": Sample(
        {"queue": "default"},
        "resume",
        first=("select redrive.pause_v1('default', 'ada', 'x')",),
    ),
    "set-queue": Sample({"queue": "default"}, "set lanes", {"fair-by": "tenant"}),
    "hold-open": Sample({"name": "smtp"}, "force breaker"),
    "hold-closed": Sample({"name": "smtp"}, "force breaker"),
    "reset": Sample({"name": "smtp"}, "reset breaker"),
    "acknowledge": Sample(GROUP, "acknowledge"),
    "unacknowledge": Sample(GROUP, "unacknowledge"),
    "mute": Sample(GROUP, "mute", {"for": "2h"}),
    "unmute": Sample(GROUP, "unmute"),
    "resolve": Sample(GROUP, "resolve", {"in": "1.4.2"}),
    "unresolve": Sample(GROUP, "unresolve"),
    # A retry is a redrive of jobs that have not died.
    "retry": Sample(GROUP, "redrive", first=(FAILS,)),
    "hold": Sample(GROUP, "hold", first=(FAILS,)),
    "release": Sample(
        GROUP,
        "release",
        first=(FAILS, "select redrive.hold_group_v1('f1', true, 'ada', 'x')"),
    ),
    "give-up": Sample(GROUP, "give up", first=(FAILS,)),
    "set-limit": Sample({"name": "emails"}, "set limit", {"concurrency": "5"}),
    "remove-limit": Sample(
        {"name": "emails"},
        "remove limit",
        first=("select redrive.set_limit_v1('emails', 5, null, 'ada', 'x')",),
    ),
    "pause-schedule": Sample({"name": "report"}, "pause schedule"),
    "resume-schedule": Sample(
        {"name": "report"},
        "resume schedule",
        first=("select redrive.pause_schedule_v1('report', 'ada', 'x')",),
    ),
    "run-schedule": Sample({"name": "report"}, "run schedule"),
    "redrive": Sample({"id": "DEAD"}, "redrive"),
    "set-owner": Sample({"pattern": "mail"}, "owner", {"owner": "team-mail"}),
    "remove-owner": Sample(
        {"pattern": "mail"},
        "owner",
        first=("select redrive.set_owner_v1('mail', '*', 'a', null, 'ada', 'x')",),
    ),
    "set-objective": Sample(
        {"pattern": "mail"}, "objective", {"objective": "dead_ratio", "value": "0.5"}
    ),
    "set-retention": Sample({"what": "audit"}, "retention", {"for": "800d"}),
    "limit-names": Sample({"what": "queues"}, "limit names", {"at-most": "5000"}),
    "campaign-start": Sample({"campaign": "PLAN"}, "redrive"),
    "campaign-cancel": Sample({"campaign": "PLAN"}, "cancel redrive"),
}
OTHERS = {
    "note": "its text is the note",
    "campaign-plan": "it changes no job, and asks for no reason",
    "campaign-pause": "a campaign must run: tests/cli/test_campaign.py",
    "campaign-resume": "as above",
    "purge": "only a shell offers it, with a usual reason: tests/cli/test_contract.py",
}
"""Verbs with tests of their own, and why."""


def prepared(site: Site, sample: Sample) -> dict[str, str]:
    """Make the rows of the samples; return the values of their names."""
    conn = site.database.conn
    dead, gone = make_dead_letter(conn), make_dead_letter(conn)
    triage.dismiss(conn, [gone], actor="ada", why="x")
    conn.execute(BREAKER)
    make_schedule(conn, "report")
    group = site.database.value(
        "select fingerprint from redrive.dead_letters where id = %s", dead
    )
    plan = campaigns.plan(conn, Filter(ids=[dead]), actor="ada").plan
    if sample.action == "unresolve":
        groups.resolve(conn, group, ["1.0"], actor="ada", why="x")
    for statement in sample.first:
        conn.execute(statement.encode())
    later = make_job(conn, delay=9_000)

    return {
        "DEAD": str(dead),
        "GONE": str(gone),
        "LATER": str(later),
        "GROUP": group,
        "PLAN": str(plan),
    }


class Face:
    """A verb, as one face offers it. Each method returns True if the face agreed."""

    def __init__(self, site: Site, word: str, query: dict[str, str]) -> None:
        self.site, self.word, self.query = site, word, query
        self.more = SAMPLES[word].more

    def preview(self) -> bool:
        raise NotImplementedError

    def act(self, why: str) -> bool:
        raise NotImplementedError


class Shell(Face):
    """The command that the preview shows."""

    def _run(self, *options: str) -> int:
        conn = self.site.database.conn
        order = Order(list(self.query.items()), more=self.more)
        words = shlex.split(VERBS[self.word].look(conn, order).shell)[1:]
        typed = words[: words.index("--why")] if "--why" in words else words
        url = ("--database-url", self.site.database.url, "--actor", "token:olaf")
        return main([*typed, *url, *options])

    def preview(self) -> bool:
        return self._run() == 0

    def act(self, why: str) -> bool:
        return self._run("--yes", "--why", why) == 0


class Form(Face):
    """The page with the form."""

    def preview(self) -> bool:
        self.page: TestClient = self.site.signed_in("olaf")
        seen = self.page.get(f"/change/{self.word}", params=self.query)
        return seen.status_code == 200 and 'class="act"' in seen.text

    def act(self, why: str) -> bool:
        form = {"csrf": csrf(self.page), "why": why, **self.more}
        done = self.page.post(
            f"/change/{self.word}", params=self.query, data=form, follow_redirects=False
        )
        return done.status_code in {200, 303}


class Api(Face):
    """The JSON API."""

    def _ask(self, **body: object) -> bool:
        inputs = VERBS[self.word].inputs
        typed = {one.name for one in inputs if one.kind in {"integer", "array"}}
        more = {
            name: json.loads(text) if name in typed else text
            for name, text in self.more.items()
        }
        fields = {name.replace("-", "_"): value for name, value in more.items()}
        answer = self.site.bearer("olaf").post(
            f"/api/v1/{self.word}", params=self.query, json=fields | body
        )
        wanted = bool(body.get("yes"))
        return answer.status_code == 200 and answer.json()["done"] is wanted

    def preview(self) -> bool:
        return self._ask()

    def act(self, why: str) -> bool:
        return self._ask(yes=True, why=why)


def test_each_verb_is_in_the_table():
    assert {*SAMPLES, *OTHERS} == set(VERBS)


@pytest.mark.parametrize("face", [Shell, Form, Api])
@pytest.mark.parametrize("word", SAMPLES)
def test_a_verb_shows_first_wants_a_reason_and_is_audited(
    site: Site, word: str, face: type[Face]
):
    sample = SAMPLES[word]
    names = prepared(site, sample)
    query = {name: names.get(value, value) for name, value in sample.query.items()}
    offered = face(site, word, query)
    lines = "select actor, action, why from redrive.audit order by id"
    before = site.database.rows(lines)

    assert offered.preview(), "a preview needs no reason"
    assert not offered.act(why="  "), "a change needs a reason"
    assert site.database.rows(lines) == before

    assert offered.act(why="the bank is back")

    (line, *_) = site.database.rows(lines)[len(before) :]
    assert line == ("token:olaf", sample.action, "the bank is back")


@pytest.mark.parametrize("word", ACTIONS)
def test_an_agent_proposes_a_verb_and_a_person_makes_it(site: Site, word: str):
    sample = SAMPLES[word]
    group = prepared(site, sample)["GROUP"]
    lines = "select actor, why from redrive.audit where action = %s order by id"
    before = site.database.rows(lines, sample.action)
    desk = Desk(Address(site.database.url), Budget(9, 9))
    asked = {"group": group, "action": word, "why": "they fail"}
    told = desk.call(Agent("helper", "ada"), "propose_change", asked)

    assert not told.is_error, told.text
    number = site.database.value("select max(id) from redrive.proposals")
    url = ("--database-url", site.database.url, "--actor", "olaf")
    start = ("proposal", "start", str(number), *url)
    assert main([*start]) == 0, "a preview needs no reason"
    assert main([*start, "--yes"]) != 0, "a change needs a reason"
    assert site.database.rows(lines, sample.action) == before

    assert main([*start, "--yes", "--why", "it is right"]) == 0
    actor, why = site.database.rows(lines, sample.action)[-1]
    assert actor == "olaf"
    assert why == f'proposal {number} of agent "helper" on behalf of "ada": it is right'
