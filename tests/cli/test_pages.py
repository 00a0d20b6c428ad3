"""The commands of each page, run in their order: a reader who types them gets no error."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.cli.main import main
from redrive.dead_letters.campaigns import drive
from tests import pages
from tests.factories import (
    complete_next,
    failure,
    let_next_die,
    make_job,
    make_schedule,
    make_worker,
)
from tests.pages import Block
from tests.postgres import Connection, Database

STAY = frozenset(
    {
        "check",
        "console",
        "demo",
        "dev",
        "exporter",
        "gateway",
        "mcp",
        "quickstart",
        "worker",
    }
)
"""Commands that do not end, or judge their surroundings. `redrive worker ls` does neither."""
ELSEWHERE = frozenset({"docs/order-and-fairness.md", "docs/tutorial.md"})
"""Pages whose commands have a test that looks at what they do."""
DEMOS = frozenset({("README.md", "console"), ("docs/demo.md", "console")})
"""Pages and languages of the blocks that the demos play."""
LIVE = frozenset({"docs/history.md", "docs/jobs.md", "docs/long-jobs.md"})
"""There, 17 is no dead letter."""
GROUPS = ("3f9a6d0c1b2e4f58", "6439800f36c67e57", "df17fd890b63dfae")
ENDS = (
    ("alerts/runbook.md", "campaign resume", 1),  # a campaign of the reader's own
    ("docs/backup.md", "audit verify", 64),  # variables of the reader's own
    ("docs/backup.md", "queue pause", 64),
    ("docs/backup.md", "", 2),  # names and ids of the reader's own: nothing matches
    ("docs/backup.md", "campaign pause", 1),
    ("alerts/runbook.md", "queue pause", 64),  # the name of a queue of the reader's own
    ("docs/backup.md", "migrate --database-url", 64),  # a variable of the reader's own
    ("docs/alerting.md", "owner rm payments", 2),  # the command that sets it asks first
    ("alerts/runbook.md", "", 2),  # names of the reader's own: nothing matches
    (
        "docs/dead-letters.md",
        "campaign start 12",
        2,
    ),  # that number went to the redrive above
    ("docs/cells.md", "queue pause mail --cell", 64),  # no cells are here
    ("docs/cells.md", "dlq show eu:17", 64),
    *(("docs/cells.md", f"{name} --cell", 64) for name in ("job ls", "job cancel")),
    *(
        ("docs/cells.md", name, 64)
        for name in ("queue resume", "enqueue", "dlq import")
    ),
    ("docs/cells.md", "dlq dismiss --cell", 64),
    ("docs/cells.md", "dlq ls --cell", 64),
    ("docs/cells.md", "dlq redrive eu:17", 64),
    ("docs/cells.md", "dlq redrive --cell", 64),
    ("docs/celery.md", "dlq", 2),  # groups of the reader's own: nothing matches
    ("docs/dead-letters.md", "campaign start", 1),  # it runs already
    ("docs/dead-letters.md", "dlq edit 17", 64),  # an editor needs a terminal
    ("docs/editing.md", "dlq edit 17", 64),
    ("docs/campaigns.md", "campaign start", 2),  # it runs already
    (
        "docs/moving/beside-your-queue.md",
        "campaign plan",
        2,
    ),  # kinds of the reader's own
    ("docs/encryption.md", "reencrypt", 64),  # a process reads its keys once: none
    ("docs/jobs.md", "job now", 2),  # a kind of the reader's own
    ("docs/jobs.md", "job wait 17", 1),  # it was cancelled above
    (
        "docs/long-jobs.md",
        "job wait 17",
        3,
    ),  # an example of a handler that returns something
    ("docs/replay.md", "job replay 17", 1),  # handlers of the reader's own
    ("docs/replay.md", "job replay --bundle", 64),  # a file of the reader's own
    ("docs/roles.md", "audit verify --known", 1),  # a line of somebody else's log
    ("docs/agents.md", "campaign start", 2),  # no agent has proposed anything
    ("docs/agents.md", "proposal start", 2),
    ("docs/agents.md", "proposal reject", 2),
)
"""What may end with another code than 0: on which page, how it begins, and the code."""


def shown(block: Block) -> bool:
    """Return whether no test of the examples or of the demo runs this block."""
    elsewhere = block.page in ELSEWHERE or block.page.startswith("examples/")
    return not elsewhere and (block.page, block.language) not in DEMOS


def commands(page: str) -> Iterator[list[str]]:
    """What is typed after `redrive`."""
    for block in filter(shown, pages.blocks("sh", "bash", "console")):
        for words in (
            pages.arguments(pages.typed(block.shell)) if block.page == page else ()
        ):
            if words[0] not in STAY or words[1:] == ["ls"]:
                yield words


def prepare(conn: Connection, page: str) -> None:
    """Dead letters 17 to 25 of three groups, or a job 17; three queues and a schedule."""
    worker = make_worker(conn)
    make_schedule(conn, "report.daily")
    for table, last in (("jobs", 16), ("campaigns", 11)):
        conn.execute(
            "select setval(pg_get_serial_sequence('redrive.' || %s, 'id'), %s)",
            (table, last),
        )
    if page in LIVE:
        make_job(conn, "report.build")
        if page == "docs/long-jobs.md":
            complete_next(conn, worker)
    for n in range(0 if page in LIVE else 9):
        make_job(
            conn, payload={"currency": "XAU" if n % 3 else "EURO"}, queue="payments"
        )
        died = failure(
            category="bug" if n < 3 else "transient", fingerprint=GROUPS[n % 3]
        )
        let_next_die(conn, worker, failure=died)
    for queue in ("mail", "imports", "payments"):
        make_job(conn, "mail.send", queue=queue)


@pytest.mark.parametrize(
    "page", sorted(page for page in pages.pages() if any(commands(page)))
)
def test_commands(
    page: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    prepare(database.conn, page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_DATABASE_URL", database.url)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr(drive, "PATIENCE_SECONDS", 0.5)  # no worker is here
    for name in ("dead.jsonl", "stdin", "jobs.jsonl"):
        Path(name).touch()
    for words in commands(page):
        if words[:2] == [
            "campaign",
            "watch",
        ]:  # it goes on until some worker has run the jobs
            continue
        with Path("stdin").open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            agreed = ["--yes"] if "--why" in words and "--yes" not in words else []
            code = main([*words, *agreed])
        said = capsys.readouterr()
        typed = " ".join(words)
        known = {
            end for on, start, end in ENDS if page == on and typed.startswith(start)
        }
        assert code in {0, *known}, (typed, said)
