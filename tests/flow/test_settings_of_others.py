"""No setting that a role or a database may have changes what producers, workers and commands do.

All settings come from the server's own catalog. They are set many at a time; if something fails,
halves are tried until the setting is found.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from redrive import enqueue, enqueue_many
from tests.cli.forks import Forks, forks
from tests.flow import look
from tests.flow.harness import wait_for, workers_on
from tests.flow.test_pgbouncer import pool
from tests.postgres import Database, Server
from trials.strangers.agents import under_agent

Settings = Mapping[str, str]

ODD = {
    "application_name": "x'y\\z",
    "backtrace_functions": "x",
    "client_encoding": "LATIN1",
    "client_min_messages": "error",
    "commit_delay": "1000",
    "createrole_self_grant": "set",
    "datestyle": "German",
    "default_table_access_method": "heap",
    "default_tablespace": "pg_default",
    "default_text_search_config": "pg_catalog.german",
    "default_toast_compression": "pglz",
    "default_transaction_isolation": "serializable",
    "extension_control_path": "/nowhere",
    "extra_float_digits": "-15",
    "geqo_generations": "1",
    "geqo_pool_size": "2",
    "gin_fuzzy_search_limit": "1",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1s",
    "intervalstyle": "sql_standard",
    "jit_above_cost": "0",
    "lock_timeout": "1s",
    "log_min_error_statement": "panic",
    "log_min_messages": "panic",
    "log_statement": "all",
    "logical_decoding_work_mem": "64",
    "maintenance_work_mem": "64",
    "max_stack_depth": "100",
    "password_encryption": "md5",
    "restrict_nonsystem_relation_kind": "view",
    "scram_iterations": "1",
    "search_path": "nowhere",
    "statement_timeout": "1s",
    "temp_file_limit": "0",
    "timezone": "Asia/Kathmandu",
    "timezone_abbreviations": "Australia",
    "transaction_timeout": "1s",
    "wal_consistency_checking": "all",
    "work_mem": "64",
}
"""The odd value of a setting, where no rule finds one."""

LEFT_OUT = {
    "debug_discard_caches": "a build without assertions allows one value",
    "default_transaction_read_only": "it stops all writes, on purpose; check names it",
    "dynamic_library_path": "without its libraries, the server does not work",
    "extension_destdir": "Debian's: where the files of extensions are",
    "file_copy_method": "clones need a file system that can make them",
    "lc_messages": "the embedded server has one language",
    "lc_monetary": "the embedded server has one locale",
    "lc_numeric": "the embedded server has one locale",
    "lc_time": "the embedded server has one locale",
    "local_preload_libraries": "a library that is missing ends each login",
    "session_preload_libraries": "a library that is missing ends each login",
    "session_replication_role": "it turns triggers off; check names it",
    "temp_tablespaces": "the server has one tablespace",
    "transaction_deferrable": "it is of one transaction, and no default",
    "transaction_isolation": "it is of one transaction, and no default",
    "transaction_read_only": "it is of one transaction, and no default",
    "track_activities": "it hides the sessions that are looked for; check names it",
    "track_counts": "it hides what autovacuum goes by; check names it",
    "update_process_title": "nothing reads the title of a process",
}
"""Settings that are not tried, and why."""

CATALOG = """
    select lower(name), vartype, boot_val, min_val, max_val, enumvals from pg_settings
    where context in ('user', 'superuser') and name not like '%%.%%' order by name
"""


def odd_settings(database: Database) -> dict[str, str]:
    """Return an odd value for each setting that a role or a database may have."""
    found: dict[str, str] = {}
    for name, kind, boot, least, most, values in database.rows(CATALOG):
        if name in LEFT_OUT:
            continue
        others = {
            "bool": ["off" if boot == "on" else "on"],
            "enum": [value for value in values or () if value != boot],
            "integer": [value for value in (least, most) if value != boot],
            "real": [value for value in (least, "1") if value != boot],
            "string": [],
        }[kind]
        chosen = ODD.get(name) or next(iter(others), None)
        assert chosen is not None, f"{name}: give it an odd value, or say why not"
        found[name] = chosen
    return found


EXPECTED = {"info", "debug"}
PATIENCE = 90
"""Seconds that a busy machine may take; with settings that are at fault, each half takes them."""

CAMPAIGNS = (
    "select count(*) from redrive.campaigns where state not in ('done', 'planned')"
)
COMMANDS = """
    job ls|job show {dead}|queue ls|queue limits|dlq ls|dlq groups|dlq show {dead}
    dlq explain {group}|batch ls|schedule ls|limit ls|campaign ls|retention ls|audit ls
    breaker ls|objective ls|owner ls|proposal ls
"""
ONCE = "dlq export {dead}|dlq report {group}|dlq report --since 7d|audit verify|top"
"""Commands without JSON."""


class Life:
    """A producer, a worker and each command on one database, which they reach by `url`."""

    def __init__(
        self, database: Database, url: str, started: Forks, home: Path
    ) -> None:
        self.database = database
        self.url = url
        self.started = started
        self.home = home

    def command(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        environment = {"REDRIVE_DATABASE_URL": self.url, "REDRIVE_ACTOR": "a"}
        code, out, err = self.started.run(arguments, environment, None)
        assert "Traceback" not in err + out, (arguments, err)
        assert code == 0 or arguments[0] == "check", (arguments, out, err)
        return out

    def commands(self, *, for_programs: bool, **names: object) -> None:
        """Run each command that shows something, for people or for programs."""
        # The server of the tests has settings that check warns about.
        self.command("check")
        typed = f"{COMMANDS}|{'' if for_programs else ONCE}".replace("\n", "|")
        for one in filter(None, map(str.strip, typed.split("|"))):
            options = ["--json"] if for_programs else []
            self.command(*one.format(**names).split(), *options)

    def live(self, *, for_programs: bool) -> None:
        """Enqueue, claim, retry, die, redrive; by the clock and by a campaign; list all."""
        with psycopg.connect(self.url, prepare_threshold=None) as producer:
            first = {"text": "Zoë O'Hara \\ ada", "f": 0.1}
            enqueue(producer, "fine", first, delay=0.01, expires_in=60)
            dead = enqueue(producer, "broken", {"text": "Zoë"}, idempotency_key="k\\1")
            enqueue(producer, "broken", {"text": "\\"}, ordering_key="a,b'{}\\")
            plain: Any = {"kind": "fine", "payload": {"n": 1}}
            enqueue_many(producer, [plain, plain | {"tenant": "t"}])
        with workers_on(self.url, self.home) as workers:
            worker = workers(handlers="tests.flow.in_other_sessions:jobs")
            wait_for(
                lambda: len(look.reasons(self.database)) == 2, PATIENCE, what="2 dead"
            )
            wait_for(lambda: look.counted(self.database)["completed"] > 4, PATIENCE)
            group = self.database.value("select min(fingerprint) from redrive.groups")
            self.commands(for_programs=for_programs, dead=dead, group=group)
            (self.home / "fixed").touch()
            why = ("--why", "fixed", "--yes")
            self.command("dlq", "redrive", str(dead), *why)
            plan = self.command("campaign", "plan", "--kind", "broken", "--json")
            self.command("campaign", "start", str(json.loads(plan)["plan"]), *why)
            self.command("campaign", "ls", "--json")
            left = "select count(*) from redrive.dead_letters where state = 'open'"
            wait_for(lambda: not self.database.value(left), PATIENCE, what="redriven")
            wait_for(
                lambda: not self.database.value(CAMPAIGNS), PATIENCE, what="campaigns"
            )
            assert worker.stop()[0] == 0
            bad = [
                e
                for e in worker.events()
                if e["level"] not in EXPECTED and e["logger"] != "redrive.jobs"
            ]
            assert bad == []


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(tmp_path_factory.mktemp("cli")) as found:
        yield found


def apply(database: Database, settings: Settings) -> None:
    """Give the role and the database settings, in turn."""
    own = sql.Identifier(database.conn.info.dbname)
    owners = "role current_user in database {}", "database {}"
    for n, (name, value) in enumerate(settings.items()):
        owner = sql.SQL(owners[n % 2]).format(own)
        change = sql.SQL("alter {} set {} = {}")
        database.conn.execute(change.format(owner, sql.Identifier(name), value))


def fault(
    server: Server, started: Forks, settings: Settings, *, pooled: bool = False
) -> str:
    """Return what goes wrong with these settings; nothing if all works."""
    with server.database() as database, tempfile.TemporaryDirectory() as home:
        apply(database, settings)
        log = Path(home) / "pgbouncer.log"
        direct = contextlib.nullcontext(database.url)
        with pool(database, log) if pooled else direct as url:
            try:
                Life(database, url, started, Path(home)).live(for_programs=pooled)
            except Exception as error:  # noqa: BLE001 # whatever goes wrong is the result
                return f"{type(error).__name__}: {error}"
    return ""


def culprits(
    server: Server, started: Forks, settings: Settings, *, pooled: bool
) -> Settings:
    """Return the smallest set of settings that goes wrong by itself, by halves."""
    while len(settings) > 1:
        items = list(settings.items())
        halves = [dict(items[n::2]) for n in range(2)]
        wrong = [half for half in halves if fault(server, started, half, pooled=pooled)]
        if not wrong:
            return settings
        settings = wrong[0]
    return settings


ONLY_A_HINT = {"default_transaction_isolation"}
"""Settings that a pool's sessions keep: ours apply to the transaction after the next."""


@pytest.mark.slow
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_no_setting_of_a_role_or_a_database_changes_what_redrive_does(
    server: Server, database: Database, started: Forks, pooled: bool
) -> None:
    kept = ONLY_A_HINT if pooled else set()
    found = odd_settings(database)
    settings = {name: value for name, value in found.items() if name not in kept}
    wrong = fault(server, started, settings, pooled=pooled)
    assert not wrong, f"{culprits(server, started, settings, pooled=pooled)}: {wrong}"


def test_no_setting_of_others_is_forgotten(database: Database) -> None:
    """A newer server has settings that nobody here has thought of."""
    names = {name for name, *_ in database.rows(CATALOG)}
    assert len(odd_settings(database)) > 150
    assert len(names & set(LEFT_OUT)) + len(odd_settings(database)) == len(names)


@pytest.mark.parametrize("driver", ["psycopg_sync", "sqlalchemy_async", "asyncpg"])
def test_no_setting_of_a_role_or_a_database_stops_a_producer(
    database: Database, driver: str
) -> None:
    apply(database, odd_settings(database))
    under_agent("no_agent", driver, database.url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session_replication_role", "replica"),
        ("default_transaction_read_only", "on"),
        ("track_activities", "off"),
        ("track_counts", "off"),
    ],
)
def test_check_names_a_setting_that_redrive_cannot_undo(
    database: Database, started: Forks, name: str, value: str
) -> None:
    apply(database, {name: value})
    environment = {"REDRIVE_DATABASE_URL": database.url}
    code, out, _ = started.run(["check"], environment, None)
    assert code == 1
    assert f"{name} is {value}" in out
