"""Commands as Jobs and hooks run them: no terminal, settings by environment, exit codes."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.conftest import Redrive
from tests.commands import commands
from tests.factories import claim, failure, let_die, make_dead_letter, make_worker
from tests.flow.harness import wait_for
from tests.postgres import Database, Server


def test_a_purge_takes_its_options_from_the_environment(
    redrive: Redrive, database: Database
) -> None:
    first, second = (
        make_dead_letter(database.conn),
        make_dead_letter(database.conn, "mail.send"),
    )
    redrive("dlq", "dismiss", str(first), str(second), "--why", "x")
    environment = {"REDRIVE_PURGE_OLDER_THAN": "0d", "REDRIVE_PURGE_KIND": "mail.send"}

    counted = redrive("purge", "--json", **environment)
    dry = redrive(
        "purge",
        "--json",
        **environment,
        REDRIVE_PURGE_YES="true",
        REDRIVE_PURGE_DRY_RUN="true",
    )
    done = redrive(
        "purge",
        "--json",
        **environment,
        REDRIVE_PURGE_YES="true",
        REDRIVE_ACTOR="purge-29",
    )

    assert [r.json for r in (counted, dry, done)] == [
        {"matched": 1, "purged": 0},
        {"matched": 1, "purged": 0},
        {"matched": 1, "purged": 1},
    ]
    assert database.column("select id from redrive.dead_letters") == [first]
    assert database.rows(
        "select actor, action, why, n from redrive.audit where action ~ 'purge' order by id"
    ) == [
        ("purge-29", "purge", "retention", 0),  # before the first change
        ("purge-29", "end purge", "retention", 1),
    ]


def test_open_dead_letters_are_purged_only_when_told(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn)
    spared = redrive("purge", "--older-than", "0d", "--yes", "--json")
    told = redrive("purge", "--older-than", "0d", "--state", "open", "--yes", "--json")

    assert (spared.json["purged"], told.json["purged"]) == (0, 1)


def test_a_redrive_by_environment_names_what_is_wrong(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn)
    for name, value in (
        ("RATE", "0"),
        ("RATE", "fast"),
        ("LIMIT", "-1"),
        ("SINCE", "yesterday"),
        ("ID", "x"),
    ):
        done = redrive(
            "dlq",
            "redrive",
            **{
                f"REDRIVE_REDRIVE_{name}": value,
                "REDRIVE_REDRIVE_KIND": "invoice.charge",
            },
        )

        assert (done.code, done.out) == (64, ""), (name, value)
        assert value in done.err
    no_why = redrive(
        "dlq",
        "redrive",
        REDRIVE_REDRIVE_KIND="invoice.charge",
        REDRIVE_REDRIVE_YES="true",
    )

    assert (no_why.code, "--why" in no_why.err) == (64, True)
    assert database.value("select count(*) from redrive.jobs") == 0


def test_what_is_transient_and_old_goes_back_at_most_twice(
    redrive: Redrive, database: Database
) -> None:
    """What `redrive.automatic` of the chart says: transient, dead for an hour, twice each."""
    old, new, bug = (make_dead_letter(database.conn) for _ in range(3))
    database.rows(
        "update redrive.dead_letters set category = 'transient',"
        " died_at = died_at - case when id = %s then interval '2 hours' else '0' end"
        " where id <> %s",
        old,
        bug,
    )
    worker = make_worker(database.conn)
    policy = {"CATEGORY": "transient", "UNTIL": "1h", "MAX_REDRIVES": "2", "RATE": "5"}
    asked = policy | {"WHY": "an hour has passed", "YES": "true", "LIMIT": "500"}
    said = []
    for _ in range(3):
        done = redrive(
            "dlq",
            "redrive",
            "--json",
            **{f"REDRIVE_REDRIVE_{name}": value for name, value in asked.items()},
        )
        said.append((done.json["matched"], done.json["redriven"], done.json["blocked"]))
        if done.json["redriven"]:  # at a rate it is due within a tenth of a second
            (job,) = wait_for(lambda: claim(database.conn, worker))
            let_die(database.conn, worker, job, failure=failure(category="transient"))
        database.rows(
            "update redrive.dead_letters set died_at = died_at - interval '2 hours' where id = %s",
            old,
        )

    assert said == [(1, 1, {}), (1, 1, {}), (1, 0, {"max_redrives": 1})]
    assert database.column(
        "select id from redrive.dead_letters where state = 'open' and redrives = 0 order by 1"
    ) == [new, bug]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ({"REDRIVE_REDRIVE_REASN": "gave_up"}, "REDRIVE_REDRIVE_REASON"),
        ({"REDRIVE_REDRIVE_LIMT": "1"}, "REDRIVE_REDRIVE_LIMIT"),
        ({"REDRIVE_LIMIT": "1"}, "REDRIVE_PURGE_LIMIT or REDRIVE_REDRIVE_LIMIT"),
        ({"REDRIVE_PURGE_OLDERTHAN": "90d"}, "REDRIVE_PURGE_OLDER_THAN"),
        ({"REDRIVE_REDRIVE_REASON": ""}, "REDRIVE_REDRIVE_REASON is empty"),
    ],
)
def test_a_misspelt_narrowing_redrives_nothing(
    redrive: Redrive, database: Database, misspelt: dict[str, str], meant: str
) -> None:
    """8 were redriven where 1 was meant, exit 0."""
    for _ in range(8):
        make_dead_letter(database.conn)
    asked = {
        "REDRIVE_REDRIVE_KIND": "invoice.charge",
        "REDRIVE_REDRIVE_WHY": "fixed",
        "REDRIVE_REDRIVE_YES": "true",
    }
    done = redrive("dlq", "redrive", **asked, **misspelt)

    assert (done.code, done.out) == (64, "")
    assert meant in done.err
    assert len(done.err.splitlines()) == 1
    assert database.value("select count(*) from redrive.jobs") == 0


@pytest.mark.parametrize(
    "command",
    [
        ("worker", "--until-empty"),
        ("exporter",),
        ("migrate",),
        ("check",),
        ("purge",),
        ("queue", "ls"),
        ("enqueue", "mail"),
        ("objective", "apply", "{}", "--why", "x"),
    ],
)
def test_every_command_refuses_a_misspelt_setting(
    redrive: Redrive, command: tuple[str, ...]
) -> None:
    """A worker warned, check found, all others went on with the default."""
    done = redrive(*command, REDRIVE_HEARTBEAT_TLL="5")

    assert (done.code, done.out) == (64, "")
    assert (
        "REDRIVE_HEARTBEAT_TLL is not a setting; did you mean REDRIVE_HEARTBEAT_TTL?"
        in done.err
    )


def test_every_command_knows_the_variables_of_the_others(redrive: Redrive) -> None:
    """The pods of a chart share variables; an unknown one ends a command."""
    variables = {
        option.envvar: "1d"
        for _, command in commands()
        for option in command.params
        if isinstance(option.envvar, str)
    }
    done = redrive("queue", "ls", **variables)

    assert (done.code, done.err) == (0, "")
    assert variables.keys() > {"REDRIVE_MIGRATE_PATIENCE", "REDRIVE_PURGE_EVERY"}


def test_a_rate_is_kept_and_a_limit_takes_the_oldest(
    redrive: Redrive, database: Database
) -> None:
    letters = [make_dead_letter(database.conn) for _ in range(5)]
    done = redrive(
        "dlq",
        "redrive",
        "--kind",
        "invoice.charge",
        "--limit",
        "4",
        "--rate",
        "4",
        "--why",
        "x",
        "--yes",
        "--json",
    )
    spread = database.column(
        # The rate counts from the start. A late step does not delay the steps after it.
        "select extract(epoch from j.run_at - c.started_at)::float8"
        " from redrive.jobs j, redrive.campaigns c order by j.run_at"
    )

    assert done.json["redriven"] == 4
    assert database.column("select id from redrive.jobs order by id") == letters[:4]
    assert all(s >= n / 4 - 0.05 for n, s in enumerate(spread)), spread


def test_by_ids_and_by_filter_at_once_means_both(
    redrive: Redrive, database: Database
) -> None:
    ids = [make_dead_letter(database.conn, kind) for kind in ("a", "a", "b")]
    done = redrive(
        "dlq",
        "redrive",
        str(ids[0]),
        str(ids[2]),
        "--kind",
        "a",
        "--why",
        "x",
        "--yes",
        "--json",
    )

    assert done.json["redriven"] == 1
    assert database.column("select id from redrive.jobs") == [ids[0]]


def test_enqueueing_from_a_pipe_is_all_or_nothing_per_chunk_and_counts(
    redrive: Redrive, database: Database
) -> None:
    lines = [json.dumps({"kind": "mail", "payload": {"n": n}}) for n in range(5_002)]
    lines[5_001] = json.dumps({"kind": "mail", "run_at": "soon"})
    done = redrive("enqueue", "-", "--json", stdin="\n".join(lines))

    assert done.code == 64
    assert "line 5002.run_at" in done.err
    assert "5000 enqueued before this chunk" in done.err
    assert database.value("select count(*) from redrive.jobs") == 5_000

    keyed = "\n".join(
        json.dumps({"kind": "mail", "idempotency_key": f"k{n % 3}"}) for n in range(9)
    )
    assert redrive("enqueue", "-", "--json", stdin=keyed).json == {
        "read": 9,
        "created": 3,
    }
    assert redrive("enqueue", "-", "--json", stdin="").json == {"read": 0, "created": 0}


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "{",
        "null",
        "{}",
        '{"kind": 1}',
        '{"kind": "mail", "payload": 7}',
        "\x00",
        "\ufeff{}",
    ],
)
def test_a_line_that_is_no_job_is_named(
    redrive: Redrive, database: Database, line: str
) -> None:
    done = redrive("enqueue", "-", stdin='{"kind": "mail"}\n' + line + "\n")

    assert done.code == 64
    assert "line 2" in done.err
    assert len(done.err.splitlines()) <= 2
    assert database.value("select count(*) from redrive.jobs") == 0


def test_migrating_is_safe_to_repeat_and_to_run_many_at_once(server: Server) -> None:
    name = f"redrive_cli_{server.version}"
    server.admin("drop database if exists {}", name)
    server.admin("create database {}", name)
    try:

        def migrate(_: int) -> subprocess.CompletedProcess[str]:
            command = ("migrate", "--database-url", server.url_of(name), "--json")
            return subprocess.run(
                [sys.executable, "-m", "redrive", *command],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )

        with ThreadPoolExecutor(4) as threads:
            done = list(threads.map(migrate, range(4)))
        again = migrate(0)
    finally:
        server.admin("drop database {} with (force)", name)
    reports = [json.loads(d.stdout) for d in done if d.returncode == 0]

    assert [d.returncode for d in done] == [0] * 4, [d.stderr for d in done]
    assert min(r["before"] for r in reports) == 0
    assert sum(bool(r["applied"]) for r in reports) == 1
    assert json.loads(again.stdout)["applied"] == []


def test_scheduled_runs_are_expected_from_the_installation_on(
    redrive: Redrive, database: Database
) -> None:
    """A purge that had never succeeded was never missed; a weekly one was, each week."""
    kept = "select extract(epoch from every)::int from redrive.chores where name = %s"

    def expected() -> list[str]:
        stats = database.value("select redrive.stats_v1('0')")
        return sorted(stats["expected"])

    said = redrive(
        "migrate", REDRIVE_PURGE_EVERY="0 3 * * 1", REDRIVE_REDRIVE_EVERY="15m"
    )
    assert said.code == 0, said.err
    assert expected() == ["purge", "redrive"]
    assert (database.value(kept, "purge"), database.value(kept, "redrive")) == (
        7 * 86_400,
        900,
    )

    assert redrive("migrate", "--redrive-every", "never").code == 0
    assert expected() == ["purge"]

    assert redrive("purge", "--yes", REDRIVE_PURGE_EVERY="17 3 * * *").code == 0
    assert database.value(kept, "purge") == 86_400

    refused = redrive("migrate", REDRIVE_PURGE_EVERY="dayly")
    assert refused.code == 64
    assert "'dayly' is not a cron expression" in refused.err


def test_without_a_database_setting_the_variable_is_named(redrive: Redrive) -> None:
    done = redrive("queue", "ls", REDRIVE_DATABASE_URL="")

    assert done.code == 64
    assert done.err.startswith("redrive: REDRIVE_DATABASE_URL is not set")


def test_usage_errors_are_64_and_help_is_0(redrive: Redrive) -> None:
    assert redrive("nonsense").code == 64
    assert redrive("dlq", "ls", "--nonsense").code == 64
    assert redrive("dlq", "show").code == 64
    assert redrive("dlq", "ls", "--state", "lost").code == 64
    assert redrive("purge", "--older-than", "soon").code == 64
    assert redrive("--help").code == 0
    assert redrive("--version").code == 0
