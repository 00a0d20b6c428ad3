"""redrive dlq edit, as it is typed: by a patch, in an editor, at a terminal."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import Handlers
from redrive.cli import main
from redrive.database.connections.connect import SETTINGS
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import read_patch
from redrive.dead_letters.filter import Filter
from tests.cli.conftest import Ran
from tests.cli.test_prompts import Terminal
from tests.factories import make_dead_letter, make_dead_letters, make_job, redrive
from tests.flow.typed_work import HANDLERS
from tests.postgres import Database

CANARY = "Zx9-canary-77"
TO_EUR = (
    '[{"op": "test", "path": "/currency", "value": "EURO"},'
    ' {"op": "replace", "path": "/currency", "value": "EUR"}]'
)
DLQ_SHOW, JOB_SHOW = ("dlq", "show"), ("job", "show")
COUNTS = {
    "matched": 0,
    "edited": 0,
    "not_applicable": 0,
    "invalid": 0,
    "unchanged": 0,
    "refused": {},
}
Run = Callable[..., Ran]


@pytest.fixture
def run(database: Database, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, as ada."""
    monkeypatch.setenv("REDRIVE_ACTOR", "ada")

    def act(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main([*arguments, "--database-url", database.url])
        return Ran(code, *capsys.readouterr())

    return act


def letter(database: Database, kind: str = "invoice.charge", **payload: Any) -> int:
    """A dead letter with this payload."""
    return make_dead_letter(database.conn, kind, payload)


def payloads(database: Database) -> list[Any]:
    return database.column("select payload from redrive.dead_letters order by id")


def test_it_shows_what_it_would_do_and_does_it_when_told(
    database: Database, run: Run
) -> None:
    """A payload can be corrected without SQL."""
    job = letter(database, currency="EURO", password=CANARY)

    shown = run("dlq", "edit", str(job), "--patch", TO_EUR)
    assert (shown.code, shown.err) == (0, "")
    assert '-  "currency": "EURO"' in shown.out
    assert '+  "currency": "EUR"' in shown.out
    assert "1 to edit; the patch changes /currency" in shown.out
    assert "nothing was changed; add --yes to do it" in shown.out
    assert (
        "--yes" not in run("dlq", "edit", str(job), "--patch", TO_EUR, "--dry-run").out
    )
    assert payloads(database)[0]["currency"] == "EURO"

    done = run("dlq", "edit", str(job), "--patch", TO_EUR, "--why", "a typo", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("1 payload edited\n")
    assert payloads(database) == [{"currency": "EUR", "password": CANARY}]
    assert CANARY not in shown.out + done.out
    assert database.rows("select actor, action, why, detail from redrive.audit") == [
        ("ada", "edit", "a typo", {"ids": [job], "paths": ["/currency"]})
    ]


def test_a_group_is_edited_where_the_patch_applies(
    database: Database, run: Run
) -> None:
    wrong = [letter(database, currency="EURO", n=n) for n in range(3)]
    letter(database, currency="USD")
    letter(database)
    closed = letter(database, currency="EURO")
    database.rows("select redrive.dismiss_v1(%s, 'bo', 'x')", [closed])
    group = database.value("select fingerprint from redrive.grouped")
    patch = ("dlq", "edit", "--group", group, "--patch", TO_EUR, "--json")

    assert run(*patch).json == COUNTS | {"matched": 5, "not_applicable": 2}
    assert payloads(database)[0]["currency"] == "EURO"
    assert run(*patch, "--why", "a typo", "--yes").json == COUNTS | {
        "matched": 5,
        "edited": 3,
        "not_applicable": 2,
    }
    assert (
        database.column(
            "select id from redrive.dead_letters where payload ->> 'currency' = 'EUR' order by id"
        )
        == wrong
    )
    again = run(*patch, "--why", "a typo", "--yes")
    assert (again.code, again.json["edited"], again.json["not_applicable"]) == (1, 0, 5)


def test_why_one_stays_is_said_without_its_values(database: Database, run: Run) -> None:
    job = letter(database, currency=CANARY)
    done = run("dlq", "edit", str(job), "--patch", TO_EUR, "--why", "a typo", "--yes")

    assert done.code == 1
    assert "1 will stay: the patch does not apply." in done.out
    assert (
        f"job {job}: operation 0 of the patch does not apply: test /currency"
        in done.out
    )
    assert CANARY not in done.out + done.err


def test_the_handlers_model_checks_what_comes_out(database: Database, run: Run) -> None:
    job = letter(database, "work.typed", number="seven", card=CANARY)
    plain = letter(database, "work.sync", number="x")

    def patched(value: str, *more: str) -> Ran:
        patch = f'[{{"op": "replace", "path": "/number", "value": {value}}}]'
        return run(
            "dlq", "edit", str(job), "--handlers", HANDLERS, "--patch", patch, *more
        )

    refused = patched('"eight"', "--why", "x", "--yes")
    assert refused.code == 1
    assert f"job {job}: payload.number: Input should be a valid integer" in refused.out
    assert patched('"eight"', "--json").json == COUNTS | {"matched": 1, "invalid": 1}
    too_deep = patched("[" * 70 + "]" * 70)
    assert "payload: nested deeper than 64 levels" in too_deep.out
    assert payloads(database)[0]["number"] == "seven"

    assert patched("8", "--why", "x", "--yes").code == 0
    assert payloads(database)[0] == {"number": 8, "card": CANARY}
    shown = run(
        "dlq",
        "edit",
        str(job),
        str(plain),
        "--handlers",
        HANDLERS,
        "--kind",
        "work.none",
        "--patch",
        '[{"op": "add", "path": "/number", "value": 1}]',
    )
    assert (shown.code, shown.err.count("has no open dead letter")) == (2, 2)
    unchecked = run(
        "dlq",
        "edit",
        str(plain),
        "--patch",
        '[{"op": "add", "path": "/n", "value": 1}]',
    )
    assert "no handler checked work.sync; see --handlers" in unchecked.out


def test_what_the_handlers_hook_refuses_is_not_stored(
    database: Database, run: Run
) -> None:
    job = letter(database, "mail", currency="EURO")
    by = ("--handlers", "tests.sql.test_unfit:jobs", "--why", "x", "--yes")
    to_gold = TO_EUR.replace('"EUR"', '"XAU"')
    refused = run("dlq", "edit", str(job), *by, "--patch", to_gold)

    assert refused.code == 1
    assert (
        f"job {job}: payload: the handler of 'mail' refuses it: validate: NotSold"
        in refused.out
    )
    assert run("dlq", "edit", str(job), *by, "--patch", TO_EUR).code == 0
    assert payloads(database) == [{"currency": "EUR"}]


def test_the_campaign_that_is_to_put_it_back_is_named(
    database: Database, run: Run
) -> None:
    job = letter(database, currency="EURO")
    run("campaign", "plan")
    run("campaign", "start", "1", "--why", "x", "--yes", "--not-before", "2h")
    done = run("dlq", "edit", str(job), "--patch", TO_EUR, "--why", "x", "--yes")

    assert done.code == 1
    named = f"job {job}: campaign 1 will redrive it; pause the campaign first: redrive campaign pause 1"
    assert named in done.out
    counts = run("dlq", "edit", str(job), "--patch", TO_EUR, "--json").json
    assert counts == COUNTS | {"matched": 1, "refused": {"in_campaign": 1}}


def test_what_is_reserved_cannot_be_written(database: Database, run: Run) -> None:
    job = letter(database, n=1)
    patch = '[{"op": "add", "path": "/$redrive", "value": {"k": "x"}}]'
    done = run("dlq", "edit", str(job), "--patch", patch, "--why", "x", "--yes")

    assert done.code == 1
    assert "payload.$redrive: this name is reserved" in done.out
    assert payloads(database) == [{"n": 1}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1", "--patch", "{}"), "patch: must be a list of operations"),
        (("1", "--patch", '[{"op": "set"}]'), "patch[0].op: must be one of add"),
        (("--patch", TO_EUR), "give ids or a filter"),
        (("--group", "f1"), "give --patch, or give one id without --json"),
        (("1", "2"), "give --patch, or give one id without --json"),
        (("1", "--json"), "give --patch, or give one id without --json"),
        (("1", "--patch", TO_EUR, "--state", "dismissed"), "state must be open"),
        (("1", "--patch", TO_EUR, "--category", "typo"), "'typo' is not one of"),
        (
            ("1", "--patch", TO_EUR, "--handlers", "nosuch:jobs"),
            "--handlers is 'nosuch:jobs'",
        ),
    ],
)
def test_what_is_typed_wrongly_is_refused(
    database: Database, run: Run, arguments: tuple[str, ...], said: str
) -> None:
    letter(database, currency="EURO")
    done = run("dlq", "edit", *arguments)

    assert done.code == 64
    assert said in done.err


def test_a_change_says_why(database: Database, run: Run) -> None:
    job = letter(database, currency="EURO")
    done = run("dlq", "edit", str(job), "--patch", TO_EUR, "--yes")

    assert done.code == 64
    assert "--why is missing" in done.err
    assert payloads(database) == [{"currency": "EURO"}]


def test_ids_that_are_not_there_are_named(database: Database, run: Run) -> None:
    job, live = letter(database, currency="EURO"), make_job(database.conn)
    some = run("dlq", "edit", str(job), "999", str(live), "--patch", TO_EUR)
    none = run("dlq", "edit", "999", "--patch", TO_EUR)

    assert (some.code, none.code) == (0, 2)
    assert [line.split()[2] for line in some.err.splitlines()] == [str(live), "999"]
    assert "job 999 has no open dead letter" in none.err


def test_show_and_story_tell_it_and_the_original_is_shown(
    database: Database, run: Run
) -> None:
    """What the payload was is not lost."""
    job = letter(database, currency="EURO", password=CANARY)
    for value, why in (("EUR", "a typo"), ("USD", "on second thought")):
        patch = f'[{{"op": "replace", "path": "/currency", "value": "{value}"}}]'
        run("dlq", "edit", str(job), "--patch", patch, "--why", why, "--yes")
    patch = '[{"op": "replace", "path": "/password", "value": "new-canary-78"}]'
    hidden = run("dlq", "edit", str(job), "--patch", patch)
    run("dlq", "edit", str(job), "--patch", patch, "--why", "x", "--yes")

    shown = run("dlq", "show", str(job), "--json").json
    assert shown["payload"] == {"currency": "USD", "password": "[redacted]"}
    assert [(e["actor"], e["login"], e["paths"], e["why"]) for e in shown["edits"]] == [
        ("ada", "postgres", ["/currency"], "a typo"),
        ("ada", "postgres", ["/currency"], "on second thought"),
        ("ada", "postgres", ["/password"], "x"),
    ]
    first = run("dlq", "show", str(job), "--original", "--json").json
    assert first["payload"] == {"currency": "EURO", "password": "[redacted]"}
    told = run("dlq", "show", str(job), "--original").out
    assert 'original payload  {"currency": "EURO"' in told
    assert "edited by ada, " in told
    assert ": /currency\n  a typo" in told
    assert "the change is secret and not shown" in hidden.out

    redrive(database.conn, [job])
    for live in (True, False):
        story = run("job", "show", str(job), "--json").json["story"]
        edited = [step for step in story if step["what"].startswith("edit")]
        assert [(s["what"], s["by"], s["why"]) for s in edited][:2] == [
            ("edited: /currency", "ada", "a typo"),
            ("edited: /currency", "ada", "on second thought"),
        ], live
        database.rows("delete from redrive.jobs")
    everything = [
        told,
        hidden.out,
        *(run(*c, str(job)).out for c in (DLQ_SHOW, JOB_SHOW)),
    ]
    assert "canary" not in str(everything)
    assert "canary" not in str(database.rows("select to_jsonb(a) from redrive.audit a"))


def test_a_job_that_nobody_edited_is_its_own_original(
    database: Database, run: Run
) -> None:
    job = letter(database, n=1)
    shown = run("dlq", "show", str(job), "--original", "--json").json

    assert (shown["payload"], shown["edits"]) == ({"n": 1}, [])


def test_what_control_characters_a_payload_has_do_not_reach_the_terminal(
    database: Database, run: Run
) -> None:
    job = letter(database, **{"a\x1b[2J": "\x1b]0;owned\x07", "n": 1})
    done = run(
        "dlq", "edit", str(job), "--patch", '[{"op": "remove", "path": "/a\\u001b[2J"}]'
    )

    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_what_changed_since_the_preview_is_left_and_counted(database: Database) -> None:
    """It was the preview that somebody agreed to."""
    changed, closed, same = (letter(database, currency="EURO", n=n) for n in range(3))
    patch = read_patch(TO_EUR)
    seen = edits.preview(
        edits.find(database.conn, Filter(ids=(changed, closed, same))),
        patch,
        Handlers(),
    )
    database.rows(
        'update redrive.dead_letters set payload = \'{"currency": "EURO"}\' where id = %s',
        changed,
    )
    database.rows("select redrive.dismiss_v1(%s, 'bo', 'x')", [closed])
    causes = edits.edit(
        database.conn, seen, patch, handlers=Handlers(), why="x", actor="ada"
    )

    assert seen.matched == 3
    assert causes == {None: 1, "changed": 1, "not_open": 1}
    assert [p["currency"] for p in payloads(database)] == ["EURO", "EURO", "EUR"]


# In an editor


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """An editor that runs a line of Python over the text of a file; gives the log of its calls."""
    log = tmp_path / "calls"

    def use(line: str, variable: str = "VISUAL") -> Path:
        script = tmp_path / f"{variable}.py"
        script.write_text(
            "import os, pathlib, sys\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"log = pathlib.Path({str(log)!r})\n"
            "n = len(log.read_text().splitlines()) if log.exists() else 0\n"
            "text = path.read_text()\n"
            "with log.open('a') as calls:\n"
            "    print(oct(path.stat().st_mode), path.name, text.count('canary'), file=calls)\n"
            f"path.write_text({line})\n"
        )
        monkeypatch.setenv(variable, f"{sys.executable} {script}")
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        return log

    return use


def test_in_the_editor_secrets_are_not_shown_and_not_lost(
    database: Database, run: Run, editor: Callable[..., Path]
) -> None:
    job = letter(database, currency="EURO", password=CANARY, amount=1.10)
    calls = editor("text.replace('EURO', 'EUR')", "EDITOR")
    done = run("dlq", "edit", str(job), "--why", "a typo", "--yes")
    mode, name, canaries = calls.read_text().split()

    assert (done.code, done.err) == (0, "")
    assert payloads(database) == [
        {"currency": "EUR", "password": CANARY, "amount": 1.1}
    ]
    assert (stat.S_IMODE(int(mode, 8)), Path(name).suffix, canaries) == (
        0o600,
        ".json",
        "0",
    )
    assert database.value("select detail -> 'paths' from redrive.audit") == [
        "/currency"
    ]
    assert database.value("select patch from redrive.edits") == [
        {"op": "replace", "path": "/currency", "value": "EUR"}
    ]


@pytest.mark.parametrize("line", ["text", "text.replace(' ', '') + '\\n'"])
def test_no_change_is_nothing_done(
    database: Database, run: Run, editor: Callable[..., Path], line: str
) -> None:
    job = letter(database, currency="EURO")
    editor(line)
    done = run("dlq", "edit", str(job), "--why", "x", "--yes")

    assert done.code == 0
    assert done.out.endswith("nothing to do\n")
    assert database.value("select count(*) from redrive.audit") == 0


@pytest.mark.parametrize(
    ("line", "said", "code"),
    [
        ("text[:-3]", "payload: is not valid JSON", 64),
        ("''", "payload: is not valid JSON", 64),
        ("'[1]'", "payload: must be an object, not list", 64),
        (
            "text.replace('\"pw\"', '\"other\"').replace('[redacted]', 'x [redacted]')",
            "stands for a value that is not shown",
            64,
        ),
    ],
)
def test_a_bad_edit_changes_nothing(
    database: Database,
    run: Run,
    editor: Callable[..., Path],
    line: str,
    said: str,
    code: int,
) -> None:
    job = letter(database, pw=CANARY, n=1)
    editor(line)
    done = run("dlq", "edit", str(job), "--why", "x", "--yes")

    assert done.code == code
    assert said in done.err
    assert payloads(database) == [{"pw": CANARY, "n": 1}]


def test_an_editor_that_fails_is_named(
    database: Database, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", "false")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    done = run("dlq", "edit", str(letter(database, n=1)), "--why", "x", "--yes")

    assert done.code == 64
    assert "false: Editing failed" in done.err


def test_without_a_terminal_no_editor_starts(
    database: Database, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    monkeypatch.setenv("VISUAL", f"touch {started}; true")
    done = run("dlq", "edit", str(letter(database, n=1)))

    assert done.code == 64
    assert done.err.endswith("Error: an editor needs a terminal; give --patch\n")
    assert not started.exists()


def test_what_somebody_else_edited_while_the_editor_was_open_is_left_alone(
    database: Database, run: Run, editor: Callable[..., Path]
) -> None:
    job = letter(database, currency="EURO")
    database.rows(
        "create function public.meddle() returns void language sql as"
        ' $$ update redrive.dead_letters set payload = \'{"currency": "GBP"}\' $$'
    )
    editor(
        f"(__import__('psycopg').connect({database.url!r}, autocommit=True)"
        ".execute('select public.meddle()'), text.replace('EURO', 'EUR'))[1]"
    )
    done = run("dlq", "edit", str(job), "--why", "x", "--yes")

    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "0 payloads edited; 1 stayed: they are others by now",
    )
    assert payloads(database) == [{"currency": "GBP"}]


def test_at_a_terminal_a_bad_edit_is_shown_and_opened_again(
    database: Database, editor: Callable[..., Path]
) -> None:
    job = letter(database, currency="EURO")
    calls = editor("'{broken' if n == 0 else '{\"currency\": \"EUR\"}'")
    terminal = Terminal(database.url, "dlq", "edit", str(job))
    terminal.wait_for(r"payload: is not valid JSON")
    terminal.wait_for(r"Open it again\?")
    terminal.type("y")
    terminal.wait_for(r"\x1b\[32m\+  \"currency\": \"EUR\"")
    terminal.wait_for(r"Edit 1 open dead letter\? Type '1' to continue")
    terminal.type("1")
    terminal.wait_for(r"Why")
    terminal.type("a typo")

    assert terminal.end() == 0, terminal.shown
    assert len(calls.read_text().splitlines()) == 2
    assert payloads(database) == [{"currency": "EUR"}]
    assert database.rows("select actor, why from redrive.audit") == [("ada", "a typo")]


# Many


def test_a_preview_keeps_no_payloads_and_pages_by_id(database: Database) -> None:
    ids = make_dead_letters(database.conn, 1200)
    patch = read_patch('[{"op": "add", "path": "/n", "value": 1}]')
    seen = edits.preview(
        edits.find(database.conn, Filter(kind=("invoice.charge",))), patch, Handlers()
    )

    assert list(seen.ids) == list(seen.found) == ids
    assert len(seen.digests) == 32 * len(ids)
    assert [len(chunk) for chunk in seen.chunks()] == [500, 500, 200]
    assert len(seen.samples) == 3
    limited = edits.find(database.conn, Filter(kind=("invoice.charge",), limit=501))
    assert len(list(limited)) == 501


def test_killed_in_the_middle_it_has_edited_whole_chunks_and_goes_on(
    database: Database,
) -> None:
    """kill -9 while the second chunk waits: what is edited is on record, none twice."""
    ids = make_dead_letters(database.conn, 1100)
    patch = '[{"op": "test", "path": "", "value": {}}, {"op": "add", "path": "/n", "value": 1}]'
    holder = database.session()
    holder.rows("begin")
    holder.rows("select from redrive.dead_letters where id = %s for update", ids[700])
    arguments = [
        sys.executable,
        "-m",
        "redrive",
        "dlq",
        "edit",
        "--kind",
        "invoice.charge",
    ]
    arguments += ["--patch", patch, "--why", "x", "--yes", "--json"]
    environment = os.environ | {"REDRIVE_DATABASE_URL": database.url}
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE)
    ours = (
        "select count(*) from pg_stat_activity where application_name = 'redrive cli'"
    )
    while not database.value(ours + " and wait_event_type = 'Lock'"):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # what the server was told it still does: it has not noticed
    holder.rows("commit")
    while database.value(ours):
        pass
    done = "select count(*) from redrive.dead_letters where payload = '{\"n\": 1}'"
    first = database.value(done)

    assert first in {500, 1000}
    assert database.value("select sum(n) from redrive.audit") == first
    assert database.value("select count(*) from redrive.edits") == first
    again = subprocess.run(arguments, env=environment, capture_output=True, check=True)
    assert json.loads(again.stdout) == COUNTS | {
        "matched": 1100,
        "edited": 1100 - first,
        "not_applicable": first,
    }
    assert database.value(done) == 1100
    assert database.value("select sum(n) from redrive.audit") == 1100
    assert database.value("select count(*) from redrive.edits where n = 1") == 1100


def test_only_operators_edit(database: Database) -> None:
    job = letter(database, currency="EURO")
    patch = read_patch(TO_EUR)
    seen = edits.preview(
        edits.find(database.conn, Filter(ids=(job,))), patch, Handlers()
    )
    how = {"handlers": Handlers(), "why": "x", "actor": "ada"}
    for role in (
        "redrive_producer",
        "redrive_worker",
        "redrive_viewer",
        "redrive_encryptor",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            edits.edit(database.connect(role, **SETTINGS), seen, patch, **how)

    assert edits.edit(database.connect("redrive_operator"), seen, patch, **how) == {
        None: 1
    }
