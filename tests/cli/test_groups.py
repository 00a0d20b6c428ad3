"""dlq groups, show, report and mute."""

from markdown_it import MarkdownIt

from tests.cli.conftest import Redrive
from tests.factories import failure, let_next_die, make_job, make_worker
from tests.postgres import Database
from trials.rollouts.rollouts import settle

CODE = {"code_inline", "fence", "code_block"}


def _die(
    database: Database,
    fingerprint: str = "f1f1f1f1f1f1f1f1",
    version: str = "1.0",
    **overrides: object,
) -> int:
    job = make_job(
        database.conn, "invoice.charge", {"invoice": 17, "password": "Zx9-canary"}
    )
    worker = make_worker(database.conn)
    record = failure(
        fingerprint=fingerprint, detail={"version": version, "stack": []}, **overrides
    )
    let_next_die(database.conn, worker, failure=record)
    return job


def test_groups_are_listed_with_the_largest_first(database: Database, redrive: Redrive):
    assert redrive("dlq", "groups").out == "no open dead letters, and no failing jobs\n"
    _die(database, "aaaaaaaaaaaaaaaa")
    for _ in range(2):
        _die(database, "bbbbbbbbbbbbbbbb", "1.1", category="transient")

    found = redrive("dlq", "groups", "--json").lines

    assert [(g["group"], g["open"], g["total"]) for g in found] == [
        ("bbbbbbbbbbbbbbbb", 2, 2),
        ("aaaaaaaaaaaaaaaa", 1, 1),
    ]
    assert [
        g["group"]
        for g in redrive("dlq", "groups", "--category", "transient", "--json").lines
    ] == ["b" * 16]
    assert [
        g["group"]
        for g in redrive("dlq", "groups", "--new-since", "1.1", "--json").lines
    ] == ["b" * 16]
    assert redrive("dlq", "groups", "--kind", "nothing", "--json").lines == []
    assert len(redrive("dlq", "groups", "--limit", "1", "--json").lines) == 1


def test_a_flood_of_groups_does_not_make_the_list_endless(
    database: Database, redrive: Redrive
) -> None:
    _die(database, "aaaaaaaaaaaaaaaa")
    database.conn.execute(
        "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
        " total, open, first_seen, last_seen) select md5(n::text), kind, category, error_class,"
        " message, sample, total, open, first_seen, last_seen"
        " from redrive.grouped, generate_series(1, 1500) n"
    )

    assert len(redrive("dlq", "groups", "--json").lines) == 1000
    assert len(redrive("dlq", "groups", "--json", "--limit", "1200").lines) == 1200


def test_a_whole_name_is_that_group_even_if_it_begins_another(
    database: Database, redrive: Redrive
):
    """`dlq ack` reported a full name as several groups, so nobody could type it."""
    _die(database, "f1f1")
    _die(database, "f1f1f1f1")

    acknowledged = redrive("dlq", "ack", "f1f1", "--why", "w", "--yes")
    listed = redrive("dlq", "ls", "--group", "f1f1", "--json").lines
    several = redrive("dlq", "ack", "f1", "--why", "w", "--yes")

    assert acknowledged.code == 0
    assert [job["group"] for job in listed] == ["f1f1"]
    assert several.code == 2


def test_a_group_is_shown_by_the_beginning_of_its_name(
    database: Database, redrive: Redrive
):
    job = _die(database, message="ring \x1b[31m the bell")

    shown = redrive("dlq", "show", "f1f1")

    assert shown.code == 0
    assert "1 open of 1 ever" in shown.out
    assert f"redrive dlq show {job}" in shown.out
    assert "\x1b" not in shown.out
    assert redrive("dlq", "show", "nothing").code == 2


def test_lines_of_a_message_are_lines_where_it_is_shown_whole(
    database: Database, redrive: Redrive
):
    """A message cannot pretend to be another field: its lines are indented."""
    job = _die(database, message="two fields:\nopen of \x1b[31m 7 ever")

    letter = redrive("dlq", "show", str(job)).out
    group = redrive("dlq", "show", "f1f1").out
    story = redrive("job", "show", str(job)).out

    assert "    ValueError: two fields:\n      open of \\u001b[31m 7 ever\n" in letter
    assert "\nValueError: two fields:\n  open of \\u001b[31m 7 ever\n1 open of" in group
    assert "ValueError: two fields: open of" in story


def test_a_report_of_jobs_that_handlers_gave_up_proposes_no_redrive(
    database: Database, redrive: Redrive
):
    group = "e" * 16
    conn, worker = database.conn, make_worker(database.conn)
    make_job(conn)
    gave_up = failure(
        error_class="GiveUp",
        message="401\nFor more information check: https://httpstatuses.com/401",
        fingerprint=group,
    )
    let_next_die(conn, worker, failure=gave_up)
    report = redrive("dlq", "report", group).out
    review = redrive("dlq", "report", "--since", "7d").out

    assert "dlq redrive" not in report
    assert f"redrive dlq dismiss --group {group}" in report
    assert "> `401`" in report
    assert "campaign plan" not in review
    assert f"redrive dlq ls --group {group[:10]}" in review


def test_a_report_is_markdown_without_secrets(database: Database, redrive: Redrive):
    job = _die(database, message="`quoted` \x1b[31m\nsecond line")

    report = redrive("dlq", "report", "f1f1f1f1f1f1f1f1")

    assert report.code == 0
    assert report.out.startswith("# `invoice.charge`: `ValueError`\n")
    assert f"## A sample: job {job}" in report.out
    assert "Versions: `1.0` since" in report.out
    assert "Zx9-canary" not in report.out
    assert "\x1b" not in report.out
    assert "Nothing yet." in report.out
    assert redrive("dlq", "report", "nothing").code == 2


LIVE = """\
CANARY`<img src=x onerror=alert(1)>`` [CANARY](https://evil.example) www.evil.example @CANARY #1

# CANARY
| CANARY | ![CANARY](https://evil.example/x.png) <script>CANARY</script> \u202eCANARY
```
<b>CANARY</b>
````"""


def test_a_report_names_who_acknowledged_the_group(
    database: Database, redrive: Redrive
):
    """The incident report left acknowledgements out of what was done."""
    _die(database)
    redrive("dlq", "ack", "f1f1", "--why", "on the phone", "--yes")

    report = redrive("dlq", "report", "f1f1").out

    assert "`tester`: `acknowledge` of 1, `on the phone`" in report


def test_no_text_of_a_producer_is_live_in_a_report(
    database: Database, redrive: Redrive
):
    """Each stands in code, by the words of a Markdown parser and not by ours."""
    stack = [{"file": f"/app/{LIVE}.py", "line": 1, "function": LIVE}]
    detail = {"version": LIVE, "stack": stack}
    record = failure(
        fingerprint="f1" * 8, detail=detail, message=LIVE, error_class=LIVE
    )
    job = make_job(
        database.conn, "www.evil.example", {LIVE: [LIVE], "```": "\n````\nCANARY"}
    )
    worker = make_worker(database.conn, LIVE)
    let_next_die(database.conn, worker, failure=record)
    actor = ("--actor", f"CANARY` {LIVE}"[:200].replace("\n", " "))
    assert redrive("dlq", "mute", "f1f1", "--why", LIVE, "--yes", *actor).code == 0

    report = redrive("dlq", "report", "f1f1").out

    tokens = [
        token
        for outer in MarkdownIt("commonmark").enable("table").parse(report)
        for token in (outer, *(outer.children or ()))
    ]
    shown = "".join(token.content for token in tokens if token.type in CODE)
    assert {token.type for token in tokens} & {
        "html_block",
        "html_inline",
        "link_open",
        "image",
    } == set()
    live = [t.content for t in tokens if t.type not in CODE and t.type != "inline"]
    assert [text for text in live if "CANARY" in text or "evil" in text] == []
    assert shown.count("CANARY") >= 6 * LIVE.count("CANARY")
    assert f"job {job}" in report
    assert "\u202e" not in report


def test_a_muted_group_is_left_out_of_redrives(database: Database, redrive: Redrive):
    _die(database)

    assert redrive("dlq", "mute", "nothing", "--why", "known").code == 2
    assert (
        redrive("dlq", "mute", "f1f1", "--for", "2h", "--why", "known", "--yes").code
        == 0
    )
    assert (
        "(muted)" in redrive("dlq", "groups").out
        or redrive("dlq", "groups", "--json").json["muted_until"]
    )
    kept = redrive("dlq", "redrive", "--all", "--why", "x", "--yes", "--json").json
    assert redrive("dlq", "mute", "f1f1", "--off", "--why", "fixed", "--yes").code == 0
    gone = redrive("dlq", "redrive", "--all", "--why", "x", "--yes", "--json").json

    assert (kept["redriven"], kept["blocked"]) == (0, {"muted": 1})
    assert (gone["redriven"], gone["blocked"]) == (1, {})


def test_a_group_has_an_owner_and_is_acknowledged(database: Database, redrive: Redrive):
    """Who cares for it, and whether somebody works on it."""
    job = _die(database)
    change = ("--why", "hand-off", "--yes")
    said = redrive("owner", "set", "default", "team-money", "--contact", "#m", *change)
    assert said.out == "default belongs to team-money\n"
    assert redrive("owner", "set", "*/k", "two words", *change).code == 64
    assert redrive("owner", "ls", "--json").lines == [
        {
            "pattern": "default",
            "queue": "default",
            "kind": "*",
            "owner": "team-money",
            "contact": "#m",
        }
    ]

    def found(*options: str) -> list[str]:
        return [g["group"] for g in redrive("dlq", "groups", *options, "--json").lines]

    assert len(found("--owner", "team-money", "--unacknowledged")) == 1
    assert found("--owner", "team-mail") == []
    mine = redrive("dlq", "ls", "--owner", "team-money", "--json").lines
    assert [letter["id"] for letter in mine] == [job]
    assert redrive("dlq", "ls", "--owner", "team-mail", "--json").lines == []
    other = redrive("dlq", "redrive", "--owner", "team-mail", "--json", *change)
    assert other.json["matched"] == 0, "nothing of theirs is dead"

    done = redrive("dlq", "ack", "f1f1", "--why", "on the phone", "--yes")
    assert (done.code, done.out) == (0, f"{'f1' * 8} is acknowledged by tester\n")
    assert found("--unacknowledged") == []
    assert redrive("dlq", "groups", "--unacknowledged").out == "no such groups\n"
    assert "acknowledged by tester, no such" in redrive("dlq", "groups").out
    shown = redrive("dlq", "show", "f1f1").out
    assert "owner team-money" in shown
    assert "by tester: on the phone" in shown
    assert redrive("dlq", "unack", "f1f1", *change).code == 0
    assert len(found("--unacknowledged")) == 1
    assert redrive("owner", "rm", "default", *change).code == 0
    assert redrive("owner", "rm", "default", *change).code == 2
    assert redrive("dlq", "ls", "--owner", "team-money", "--json").lines == []


def test_groups_are_acknowledged_by_id_and_by_filters(
    database: Database, redrive: Redrive
):
    """`dlq ack` took one group only, and no list said whose a dead letter is."""
    first, second = _die(database, "a1a1"), _die(database, "b2b2", category="transient")
    why = ("--why", "on the phone", "--yes")

    def held() -> dict[str, str | None]:
        listed = redrive("dlq", "ls", "--json").lines
        return {letter["group"]: letter["acknowledged_by"] for letter in listed}

    assert held() == {"a1a1": None, "b2b2": None}
    by_id = redrive("dlq", "ack", str(first), "999", *why)
    assert (by_id.code, by_id.out) == (0, "a1a1 is acknowledged by tester\n")
    assert by_id.err == (
        "redrive: job 999 has no open dead letter; "
        "redrive job show 999 shows what happened to it\n"
    )
    assert held() == {"a1a1": "tester", "b2b2": None}
    shown = redrive("dlq", "show", str(first), "--json").json
    (group,) = redrive("dlq", "groups", "--category", "bug", "--json").lines
    assert shown["acknowledged_by"] == group["acknowledged_by"] == "tester"
    assert shown["acknowledged_at"] == group["acknowledged_at"] is not None

    by_filter = redrive("dlq", "ack", "--category", "transient", *why, "--json")
    assert by_filter.json == {"group": "b2b2", "acknowledged": True}
    both = redrive("dlq", "unack", "a1", str(second), *why)
    assert both.out == "a1a1 is not acknowledged\nb2b2 is not acknowledged\n"
    assert held() == {"a1a1": None, "b2b2": None}

    none = redrive("dlq", "ack", "--kind", "nothing", *why)
    assert (none.code, none.out) == (0, "nothing matched\n")
    assert redrive("dlq", "ack", "999", *why).code == 2
    assert redrive("dlq", "ack", "zz", *why).code == 2
    for unclear in ((), ("a1", "--kind", "k"), ("--id", "1", "--state", "dismissed")):
        assert redrive("dlq", "ack", *unclear, *why).code == 64, unclear


def test_groups_have_one_of_three_states(database: Database, redrive: Redrive):
    """Programs read whether a group is open, resolved or regressed."""
    for name in ("aaaa", "bbbb", "cccc"):
        _die(database, name)
    for name in ("bbbb", "cccc"):
        redrive("dlq", "resolve", name, "--in", "1.1", "--why", "fixed", "--yes")
    _die(database, "cccc", "1.1")
    settle(database.conn)

    found = redrive("dlq", "groups", "--json").lines

    states = {group["group"]: group["state"] for group in found}
    assert states == {"aaaa": "open", "bbbb": "resolved", "cccc": "regressed"}
