"""No stored value ends a reader: commands, pages, the API, agents."""

import base64
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest

from tests.agents.conftest import Agent, agent, make_agent
from tests.cli.conftest import Redrive, redrive, started
from tests.console.conftest import Site
from tests.factories import make_dead_letter
from tests.postgres import Database

__all__ = ["agent", "make_agent", "redrive", "started"]

HOSTILE = {
    "infinite": '{"n": 1e999, "m": -1e999}',
    "deep": '{"n": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "many digits": '{"n": ' + "9" * 5_000 + ', "m": [' + "9" * 310 + "]}",
    "escapes": r'{"n": "\\u0000 \\ud800 \u202e \u001b[2J \ufffe"}',
    "doubled": '{"n": 1, "n": {"n": 2, "n": 3}}',
    "wide": '{"n": "' + "x" * (2 << 20) + '"}',
    "list": '[1, {"n": 2}]',
    "text": '"text"',
    "null": "null",
    "types": '{"traceparent": 7, "$redrive": {"k": []}, "": null, "name": {"value": 1}}',
    "envelope": '{"$redrive": 5}',
}
"""Values that somebody may have written by SQL, or an older release has let in."""

COLUMNS = {
    "payload": "update redrive.dead_letters set payload = %s where id = %s",
    "headers": "update redrive.dead_letters set headers = %s where id = %s",
    "failure": "update redrive.failures set"
    " detail = jsonb_build_object('stack', '[]'::jsonb, 'more', %s::jsonb) where job = %s",
    "checkpoint": "insert into redrive.checkpoints (data, job, deliveries)"
    " values (jsonb_build_object('data', %s::jsonb), %s, 1)",
}
"""What writes a value. The last two columns have a shape that only workers write."""


@pytest.mark.parametrize("column", COLUMNS)
def test_no_stored_value_ends_a_reader(
    column: str,
    redrive: Redrive,
    agent: Agent,
    site: Site,
    database: Database,
    tmp_path: Path,
) -> None:
    letters = {name: make_dead_letter(database.conn) for name in HOSTILE}
    good = make_dead_letter(database.conn)
    for name, job in letters.items():
        database.rows(COLUMNS[column], HOSTILE[name], job)
    group = database.value("select min(fingerprint) from redrive.dead_letters")
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(f"new {base64.b64encode(bytes(32)).decode()}\n")

    found = [
        *by_commands(redrive, letters, group, tmp_path),
        *by_pages(site, letters, group),
        *by_agent(agent, letters, group),
        *by_bulk(redrive, letters, good, keys),
    ]

    assert not found, "\n".join(map(str, found))


def by_commands(
    redrive: Redrive, letters: dict[str, int], group: str, home: Path
) -> list[Any]:
    every = [
        ("dlq", "ls", "--json"),
        ("dlq", "groups"),
        ("dlq", "show", group),
        ("dlq", "explain", group),
        ("dlq", "explain", group, "--json"),
        ("dlq", "report", group),
        ("dlq", "report", "--since", "1h"),
        ("job", "ls"),
        ("campaign", "plan", "--kind", "invoice.charge"),
    ]
    found = [failed(redrive, "all", command) for command in every]
    for name, job in letters.items():
        found += [
            failed(redrive, name, (*verb.split(), str(job)))
            for verb in ("dlq show", "dlq export", "dlq show --json", "job show")
        ]

        file = home / f"{job}.json"
        file.write_text(redrive("dlq", "export", str(job)).out)
        replay = ("job", "replay", "--handlers", "tests.replay.apps:jobs")
        found.append(
            failed(redrive, name, (*replay, "--bundle", str(file)), (0, 1, 64))
        )

    return [*filter(None, found)]


def failed(
    redrive: Redrive, name: str, command: tuple[str, ...], codes: tuple[int, ...] = (0,)
) -> Any:
    ran = redrive(*command)
    if ran.code in codes and "Traceback" not in ran.err:
        return None
    return name, command, ran.code, ran.err[-900:]


def by_pages(site: Site, letters: dict[str, int], group: str) -> list[Any]:
    paths = {f"/dead-letters/{job}": name for name, job in letters.items()}
    paths |= {f"/jobs/{job}": name for name, job in letters.items()}
    paths |= {f"/edit?id={job}": name for name, job in letters.items()}
    every = ("/dead-letters", "/groups", "/report", "/", "/jobs", "/audit")
    paths |= dict.fromkeys((*every, f"/groups/{group}", f"/explain/{group}"), "all")
    browser, program = site.signed_in("olaf"), site.bearer("olaf")
    found = []
    for path, name in paths.items():
        for client, start in ((browser, ""), (program, "/api/v1")):
            try:
                answer = client.get(start + path)
            except Exception as error:  # noqa: BLE001 # the client raises what the page did
                found.append((name, start + path, place_of(error)))
            else:
                assert answer.status_code < 500
    return found


def place_of(error: BaseException) -> Any:
    frames = [f"{f.filename}:{f.lineno}" for f in extract_tb(error.__traceback__)]
    return repr(error)[:200], [f for f in frames if "/service/redrive/" in f][-3:]


def by_agent(agent: Agent, letters: dict[str, int], group: str) -> list[Any]:
    calls: list[Any] = [("show_dead_letter", {"job": job}) for job in letters.values()]
    calls += [("list_groups", {}), ("explain_group", {"group": group})]
    calls += [("report", {"group": group})]
    told = zip(calls, agent.ask(*calls), strict=True)
    return [(call, text[:300]) for call, (text, is_error) in told if is_error]


def by_bulk(
    redrive: Redrive, letters: dict[str, int], good: int, keys: Path
) -> list[Any]:
    """Make every change of many; the good dead letter takes part in each."""
    patch = '[{"op": "add", "path": "/seen", "value": 7}]'
    kind, why = ("--kind", "invoice.charge"), ("--yes", "--why", "a test")
    jobs = [*map(str, (*letters.values(), good))]
    found = [
        failed(redrive, "all", command)
        for command in (
            ("dlq", "edit", *kind, "--patch", patch, *why),
            ("dlq", "dismiss", *kind, *why),
            ("dlq", "reopen", *jobs, *why),
            ("dlq", "redrive", *kind, "--canaries", "0", *why),
        )
    ]
    shown = redrive("dlq", "show", str(good), "--json").json["payload"]
    if shown.get("seen") != 7:
        found.append(("edit", redrive("dlq", "edit", *kind, "--patch", patch, *why)))

    ran = redrive("reencrypt", "--json", REDRIVE_ENCRYPTION_KEYS_FILE=str(keys))
    if ran.code not in (0, 1) or "Traceback" in ran.err:
        found.append(("reencrypt", ran.code, ran.err[-400:]))

    return [*filter(None, found)]
