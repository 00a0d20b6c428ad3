"""What people get wrong with commands is told in a few lines, with what to do about it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from redrive.errors import SettingsError
from redrive.handlers import load
from redrive.testing import postgres
from tests.cli.conftest import Redrive
from tests.factories import (
    failure,
    let_next_die,
    make_dead_letter,
    make_job,
    make_worker,
)
from tests.postgres import Database

BROKEN = """
def settings():
    password = "hunter2-canary"
    raise KeyError(f"no STRIPE_KEY; password={password}")

settings()
"""


@pytest.fixture
def login(database: Database) -> Iterator[str]:
    """The URL of somebody who was granted nothing."""
    name = f"nobody_{database.conn.info.dbname}"
    database.conn.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    given = psycopg.conninfo.conninfo_to_dict(database.url)
    yield psycopg.conninfo.make_conninfo(**{**given, "user": name})
    database.conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    database.conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.parametrize("role", [None, "redrive_producer"])
def test_check_as_a_login_without_rights_says_which_it_lacks(
    redrive: Redrive, database: Database, login: str, role: str | None
) -> None:
    """An error of Postgres is explained in a few lines."""
    name = psycopg.conninfo.conninfo_to_dict(login)["user"]
    if role:
        database.conn.execute(
            sql.SQL("grant {} to {}").format(
                sql.Identifier(role), sql.Identifier(str(name))
            )
        )
    done = redrive("check", REDRIVE_DATABASE_URL=login)

    assert done.code == 1
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0].startswith("ok   settings")
    assert lines[-1].startswith("bad  rights")
    assert (
        f"permission denied for {'function health_v1' if role else 'schema redrive'}"
        in lines[-1]
    )
    assert f"{name if role else 'this login'} may not look there" in lines[-1]
    assert "grant redrive_operator to it" in lines[-1]


def test_a_command_without_rights_names_the_page_on_roles(
    redrive: Redrive, login: str
) -> None:
    done = redrive("queue", "ls", REDRIVE_DATABASE_URL=login)

    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "permission denied for schema redrive (42501); docs/roles.md" in done.err


def test_check_calls_a_postgres_to_try_things_on_bad_for_nothing(
    redrive: Redrive, database: Database
) -> None:
    """It said of one that goes with its terminal that a crash loses jobs, as of any other."""
    with postgres() as url:
        done = redrive("check", REDRIVE_DATABASE_URL=url)
    assert (done.code, "ok   durability   not needed" in done.out) == (0, True)

    assert "bad  durability   fsync is off: " in redrive("check").out


@pytest.mark.parametrize("command", ["worker", "policy", "check"])
def test_a_registry_that_raises_at_import_shows_where(
    redrive: Redrive, tmp_path: Path, command: str
) -> None:
    """A handler module that cannot be imported gives a few lines and no traceback of Redrive."""
    (tmp_path / "broken_app.py").write_text(BROKEN)
    arguments = {"policy": ("policy", "show", "a"), "check": ("check",)}.get(
        command, ("worker", "--http-port", "0")
    )
    done = redrive(
        *arguments, "--handlers", "broken_app:jobs", PYTHONPATH=str(tmp_path)
    )
    said = done.out if command == "check" else done.err
    lines = [line for line in said.splitlines() if "{" not in line[:1]]
    # the process that imports them for a worker is told which, and not how they were named
    name = "REDRIVE_HANDLERS" if command == "worker" else "--handlers"
    (at,) = [n for n, line in enumerate(lines) if name in line]

    assert done.code == (1 if command == "check" else 64)
    assert (
        f"{name} is 'broken_app:jobs'; it cannot be imported: KeyError: " in lines[at]
    )
    assert [line.strip() for line in lines[at + 1 : at + 5]] == [
        f'File "{tmp_path}/broken_app.py", line 6, in <module>',
        "settings()",
        f'File "{tmp_path}/broken_app.py", line 4, in settings',
        'raise KeyError(f"no STRIPE_KEY; password=[redacted]")',
    ]
    assert "importlib" not in said
    assert "Traceback" not in said
    assert "hunter2-canary" not in said


def test_a_registry_with_a_syntax_error_shows_the_line(
    redrive: Redrive, tmp_path: Path
) -> None:
    (tmp_path / "typo_app.py").write_text("jobs = Handlers(\n")
    done = redrive(
        *("policy", "show", "a", "--handlers", "typo_app:jobs"),
        PYTHONPATH=str(tmp_path),
    )

    assert done.code == 64
    assert "it cannot be imported: SyntaxError: '(' was never closed" in done.err
    assert f'File "{tmp_path}/typo_app.py", line 1' in done.err
    assert "    jobs = Handlers(" in done.err


@pytest.mark.parametrize(
    ("handlers", "said"),
    [
        ("near_app:job", "near_app has no job; it has jobs"),
        ("near_app:Path", "that is a type, not a Handlers registry; it has jobs"),
        ("near_app.py:jobs", "it must name a module, not a file: near_app:jobs"),
        (
            "./shop/near_app.py:jobs",
            "it must name a module, not a file: shop.near_app:jobs",
        ),
        (
            "nere_app:jobs",
            "No module named 'nere_app'; go to where it is, or set PYTHONPATH",
        ),
    ],
)
def test_a_registry_that_is_not_there_is_told_with_the_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: str, said: str
) -> None:
    code = "from pathlib import Path\nfrom redrive import Handlers\njobs = Handlers()\n"
    (tmp_path / "near_app.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(SettingsError) as error:
        load(handlers)

    assert str(error.value).splitlines()[0].endswith(said)


def test_a_name_that_no_job_has_had_is_told_where_nothing_is_found(
    redrive: Redrive, database: Database
) -> None:
    """It found nothing, as if all were well."""
    make_dead_letter(database.conn, kind="invoice.charge", queue="payments")
    filters = ("--kind", "invoice.chrage", "--queue", "paymnts")
    kind = "redrive: no job has been of a kind 'invoice.chrage' yet; did you mean invoice.charge?"
    queue = "redrive: no job has been in a queue 'paymnts' yet; did you mean payments?"

    for code, *command in (
        (0, "dlq", "ls"),
        (0, "job", "ls"),
        (2, "dlq", "redrive"),
        (2, "campaign", "plan"),
    ):
        done = redrive(*map(str, command), *filters)
        assert (done.code, done.err.splitlines()) == (code, [kind, queue])
    assert redrive("dlq", "groups", *filters[:2]).err.splitlines() == [kind]
    assert (
        redrive("dlq", "ls", "--queue", "payments", "--kind", "invoice.charge").err
        == ""
    )
    assert redrive("job", "ls", "--queue", "payments").err == ""
    assert "No such command 'jobs'. Did you mean 'job'?" in redrive("jobs", "ls").err


def test_a_redrive_of_what_does_not_exist_fails_by_id_and_by_kind(
    redrive: Redrive, database: Database
) -> None:
    make_job(database.conn, kind="invoice.charge")

    assert redrive("dlq", "redrive", "999999").code == 2
    assert redrive("dlq", "redrive", "--kind", "nope").code == 2
    assert redrive("dlq", "redrive", "--kind", "invoice.charge").code == 0, "none died"
    assert redrive("dlq", "redrive", "--kind", "nope", "--every", "1h").code == 0, (
        "a scheduled run may come before the first job"
    )


def test_a_rule_of_redrive_is_said_in_its_own_words(
    redrive: Redrive, database: Database
) -> None:
    job = make_dead_letter(database.conn)
    redrive("dlq", "redrive", str(job), "--why", "x", "--yes", "--json")
    database.rows("update redrive.campaigns set state = 'done'")
    campaign = str(database.value("select id from redrive.campaigns"))
    done = redrive("campaign", "pause", campaign, "--why", "x", "--yes")

    said = (
        f"redrive: campaign {campaign} is done; only a running campaign can be paused"
    )
    assert (done.code, done.err) == (2, said + "\n")
    for verb in ("pause", "resume", "cancel", "show"):
        options = [] if verb == "show" else ["--why", "x", "--yes"]
        done = redrive("campaign", verb, "999", *options)
        assert (done.code, done.err) == (2, "redrive: there is no campaign 999\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("dlq", "ls", "--limit", "x"),
            "--limit is 'x'; it must be a whole number, 1 or",
        ),
        (("worker", "--runners", "x"), "--runners is 'x'; it must be a whole number"),
        (("job", "show", "x"), "'x' is not an id; write 17, or eu:17"),
        (
            ("queue", "limit", "kinds=x", "--why", "y"),
            "at-most is 'x'; it must be a whole number from 1 to 1000000",
        ),
    ],
)
def test_a_number_that_is_none_is_refused_with_what_is_allowed(
    redrive: Redrive, arguments: tuple[str, ...], said: str
) -> None:
    done = redrive(*arguments)

    assert done.code == 64
    assert said in done.err
    assert "range" not in done.err


def test_the_beginning_of_a_name_that_is_not_clear_is_told_with_the_names(
    redrive: Redrive, database: Database
) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    for n in range(5):
        make_job(conn, f"mail.n{n}")
        died = failure(fingerprint=f"ab{n}".ljust(16, "0"))
        let_next_die(conn, worker, failure=died)

    none = redrive("dlq", "show", "cd")
    assert (none.code, none.err) == (2, "redrive: no group begins with cd\n")
    for command in ("show", "explain", "ack", "report", "mute"):
        options = ["--why", "x", "--yes"] if command in {"ack", "mute"} else []
        done = redrive("dlq", command, "ab", *options)
        assert done.code == 2
        assert done.err.startswith(
            "redrive: 5 groups begin with ab: ab00000000000000, ab10000000000000,"
            " ab20000000000000, ...; give more of the name"
        )


def test_a_queue_that_nobody_has_used_is_not_paused_by_a_slip(
    redrive: Redrive, database: Database
) -> None:
    """`queue pause nosuch` makes no queue."""
    make_job(database.conn, "mail.send", queue="payments")
    why = ("--why", "the bank is down", "--yes")

    for command in (("pause", "paymnts"), ("set", "paymnts", "--fair-by", "tenant")):
        done = redrive("queue", *command, *why)
        assert done.code == 2
        assert (
            "no job has been in a queue 'paymnts' yet; did you mean payments?"
            in done.err
        )
    assert database.column("select queue from redrive.queues") == []
    assert redrive("queue", "pause", "nosuch", "--create", *why).code == 0
    assert redrive("queue", "pause", "payments", *why).code == 0
    assert database.column("select queue from redrive.queues order by 1") == [
        "nosuch",
        "payments",
    ]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--database-url nonsense:p4ss queue ls", "redrive COMMAND --database-url"),
        ("--database-url=nonsense:p4ss queue ls", "redrive COMMAND --database-url"),
        (
            "queue --database-url nonsense:p4ss ls",
            "redrive queue COMMAND --database-url",
        ),
        ("--json --database-url nonsense:p4ss queue ls", "redrive COMMAND --json"),
    ],
)
def test_an_option_before_its_command_is_told_where_it_goes(
    redrive: Redrive, typed: str, said: str
) -> None:
    done = redrive(*typed.split())

    assert done.code == 64
    last = done.err.splitlines()[-1]
    assert last.endswith(f"; options go after the command: {said}")
    assert "p4ss" not in done.err


@pytest.mark.parametrize("typed", ["--database-url nonsense:p4ss", "--slots 4"])
def test_an_option_of_the_worker_is_not_dropped_where_the_workers_are_listed(
    redrive: Redrive, typed: str
) -> None:
    """The workers of REDRIVE_DATABASE_URL were listed, as if they were of the other database."""
    option = typed.split(maxsplit=1)[0]
    done = redrive("worker", *typed.split(), "ls")

    assert (done.code, done.out) == (64, "")
    assert done.err.splitlines()[-1] == (
        f"Error: {option} is before ls; options of redrive worker ls go after it"
    )
    assert redrive("worker", "ls").code == 0


def test_an_option_that_the_command_does_not_know_is_none(redrive: Redrive) -> None:
    done = redrive("queue", "ls", "--kind", "x")

    assert done.code == 64
    assert "No such option" in done.err
    assert "goes after" not in done.err


@pytest.mark.parametrize(
    "command", ["dlq redrive --all", "campaign plan", "campaign start 1 --why fixed"]
)
def test_a_rate_that_is_no_rate_is_refused_alike(
    redrive: Redrive, command: str
) -> None:
    """Two of these commands named the range, and not what to write."""
    done = redrive(*command.split(), "--rate", "0")

    assert done.code == 64
    assert "--rate is '0'; it must be jobs per second, 0.001 or more" in done.err


@pytest.mark.parametrize(
    ("url", "what"), [("nonsense:p4ss", "does not parse"), ("", "is empty")]
)
def test_a_url_that_is_no_url_is_named_by_its_option(
    redrive: Redrive, url: str, what: str
) -> None:
    """The variable was named, which may be right, or not set."""
    for command in (
        "queue ls",
        "queue pause payments --why slow --yes",
        "dlq redrive --kind a --yes --why fixed",
        "purge --yes",
        "enqueue a",
        "job wait 1",
        "audit verify",
        "migrate",
        "check",
        "worker --handlers tests.flow.handlers:jobs --http-port 0",
        "worker ls",
        "exporter",
        "console --demo --port 0",
        "demo ledger",
    ):
        done = redrive(*command.split(), "--database-url", url)

        assert done.code == 64, command
        said = f"redrive: --database-url {what}; it must be a"
        assert done.err.splitlines()[-1].startswith(said), command
        assert "p4ss" not in done.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "worker --handlers a:b --slots 0",
            "--slots is 0; it must be a whole number, 1 or more",
        ),
        ("worker --handlers a:b --runners -1", "--runners is -1; "),
        ("worker --handlers a:b --http-port 65536", "--http-port is 65536; "),
        ("worker --handlers a:b --queue 1a", "--queue holds '1a'; a queue must match"),
        ("worker --handlers a:b --queue ,", "--queue is ','; it must name a queue"),
        ("worker --handlers a:b --queue=", "--queue is ''; it must name a queue"),
        ("exporter --http-port 65536", "--http-port is 65536; "),
        ("console --demo --port 65536", "--port is 65536; "),
        ("queue ls --cell=", "--cell is ''; it must be text"),
        ("dlq note 1 seen --actor=", "--actor is ''; it must be text"),
        (
            "policy show a --handlers nosuch:jobs",
            "--handlers is 'nosuch:jobs'; it cannot be",
        ),
        (
            "campaign plan --kind a --handlers nosuch",
            "--handlers is 'nosuch'; it must be module:",
        ),
    ],
)
def test_a_setting_that_was_typed_is_named_by_its_option(
    redrive: Redrive, typed: str, said: str
) -> None:
    """Each is a variable, too, by which it was named."""
    done = redrive(*typed.split())

    assert done.code == 64
    assert done.err.startswith(f"redrive: {said}")


def test_a_variable_is_named_by_itself_beside_options_of_others(
    redrive: Redrive,
) -> None:
    worker = ("worker", "--handlers", "a:b")

    assert redrive(*worker, REDRIVE_SLOTS="0").err.startswith(
        "redrive: REDRIVE_SLOTS is '0'; "
    )
    done = redrive(*worker, "--slots", "1", REDRIVE_QUEUES="1a")
    assert done.err.startswith("redrive: REDRIVE_QUEUES holds '1a'")


@pytest.mark.parametrize(
    "arguments",
    [("dlq", "assign", "{}"), ("queue", "{}"), ("enqueue", "a", "{}", "{}")],
)
def test_an_error_of_usage_says_an_argument_without_its_escapes(
    redrive: Redrive, arguments: tuple[str, ...]
) -> None:
    """A script may pass on a stored text; a terminal must not obey it."""
    hostile = "\x1b]0;title\x07\u202e"

    done = redrive(*(part.format(hostile) for part in arguments))

    assert done.code == 64
    assert "]0;title" in done.err
    assert not {"\x1b", "\x07", "\u202e"} & set(done.err)


def test_a_worker_that_gets_handlers_without_their_flag_names_it(
    redrive: Redrive,
) -> None:
    done = redrive("worker", "app.jobs:jobs")

    assert done.code == 64
    assert "redrive worker --handlers app.jobs:jobs" in done.err


def test_a_key_that_is_there_twice_is_refused_by_name(
    redrive: Redrive, database: Database
) -> None:
    """The last one counted, and a reader of the text may see the first one only."""
    twice = '{"a": [{"sum": 1, "sum": 2}]}'
    line = '{"kind": "a.b", "payload": ' + twice + "}"
    kind = '{"kind": "a.b", "payload": {}, "kind": "c.d"}'
    dead = str(make_dead_letter(database.conn))
    patch = '[{"op": "add", "path": "/a", "path": "/b", "value": 1}]'
    for key, ran in (
        ("sum", redrive("enqueue", "a.b", twice)),
        ("sum", redrive("enqueue", "-", stdin=line)),
        ("sum", redrive("dlq", "import", "-", "--source", "sqs", stdin=line)),
        ("kind", redrive("dlq", "import", "-", "--source", "a", stdin=kind)),
        ("path", redrive("dlq", "edit", dead, "--patch", patch)),
    ):
        assert ran.code != 0
        assert f"has the key '{key}' twice" in ran.err
