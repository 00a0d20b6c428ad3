"""The server over standard input and output, as a process: hostile lines, and its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.agents.test_serving import ASK, BEGIN
from tests.flow.harness import alive, wait_for
from tests.postgres import Database

COMMAND = (sys.executable, "-m", "redrive", "mcp", "--actor", "ada")
CANARY = "s3cret-canary"
PIPE = subprocess.PIPE

Start = Callable[..., subprocess.Popen[bytes]]


def environment(url: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("REDRIVE_")}
    return kept | {"REDRIVE_DATABASE_URL": url}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def call(name: str, arguments: Any) -> bytes:
    return line(
        id=7, method="tools/call", params={"name": name, "arguments": arguments}
    )


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(url: str = database.url) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment(url)
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def say(process: subprocess.Popen[bytes], *lines: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(one + b"\n" for one in lines))
    process.stdin.flush()


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


HOSTILE = {
    "cut": b'{"a": ' + CANARY.encode(),
    "bytes": b"\x00\xff\xfe" + CANARY.encode(),
    "huge": b'"' + CANARY.encode() * 800_000 + b'"',
    "deep": b"[" * 200_000,
    "deep arguments": call("why_job", json.loads('{"a":' * 900 + "1" + "}" * 900)),
    "method": line(id=6, method=CANARY),
    "tool": call(CANARY, {}),
    "argument": call("why_job", {"job": CANARY}),
    "a list of arguments": call("why_job", [CANARY]),
    "a long id": b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
    "an id of no size": b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
    "a batch": json.dumps([ASK, ASK]).encode(),
    "nothing": b"",
    "null": b"null",
    "half a letter": b'{"jsonrpc":"2.0","id":8,"method":"\\ud800"}',
    "an answer": line(id=99, result={CANARY: 1}),
    "a cancellation": line(
        method="notifications/cancelled", params={"requestId": CANARY}
    ),
}


@pytest.mark.waits
def test_no_line_ends_the_command_and_none_is_repeated_on_stderr(start: Start) -> None:
    process = start()
    say(process, json.dumps(BEGIN).encode(), line(method="notifications/initialized"))
    answer(process)

    for name, hostile in HOSTILE.items():
        say(process, hostile, json.dumps(ASK | {"id": name}).encode())
        while answer(process).get("id") != name:
            pass

    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.waits
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_at_a_signal_while_its_input_is_open(
    start: Start, number: signal.Signals
) -> None:
    process = start()
    say(process, json.dumps(BEGIN).encode())
    answer(process)

    process.send_signal(number)

    assert process.wait(60) == 128 + number


@pytest.mark.waits
def test_the_command_ends_with_its_parent(database: Database, tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import os, signal, subprocess\n"
        f"p = subprocess.Popen({COMMAND!r}, stdin=-1, stdout=-1)\n"
        f"p.stdin.write({json.dumps(BEGIN).encode()!r} + b'\\n')\n"
        "p.stdin.flush(), p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        (sys.executable, parent),
        env=environment(database.url),
        stdout=PIPE,
        check=False,
    )

    wait_for(lambda: not alive(int(ran.stdout)), 60)


@pytest.mark.waits
def test_no_password_is_in_an_error_of_the_command(
    start: Start, database: Database
) -> None:
    away = make_conninfo(database.url, password=CANARY, dbname="nowhere")
    for url in (away, f"postgresql://ada:{CANARY}@[no/host"):
        out, err = start(url).communicate(timeout=60)
        assert out == b""
        assert err.startswith(b"redrive: ")
        assert CANARY.encode() not in err
