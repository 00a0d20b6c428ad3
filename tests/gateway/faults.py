"""Kills of gateway, broker and Postgres while dead letters come in and are sent back.

python -m tests.gateway.faults --messages 100000 --kills 200
"""

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import pika.exceptions
import psycopg

from redrive.database.connections.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres
from redrive.database.schema.migrate import migrate
from tests.flow.harness import Worker
from tests.gateway.broker import Broker
from tests.postgres import guarded

WORK, DEAD = "orders", "orders.dead"
PATIENCE_SECONDS = 900
RATE = 1_000

LEFT: LiteralString = "select count(*) from redrive.dead_letters where state = 'open' and payload ? 'back'"
ACTIVE: LiteralString = (
    "select count(*) from redrive.campaigns where state not in ('done', 'aborted')"
)
JOBS: LiteralString = "select count(*) from redrive.jobs"


@dataclass
class Found:
    """Findings of a run.

    `doubles`: dead letters of a message beyond its first. `sent_twice`: jobs whose
    message reached its queue more than once. `may_be_twice`: jobs that the
    gateway has logged as sent again.
    """

    messages: int
    kills: Counter[str] = field(default_factory=Counter[str])
    lost: int = 0
    doubles: int = 0
    counted_doubles: int = 0
    doubles_with_id: int = 0
    left_in_queue: int = 0
    kills_of_the_way_back: Counter[str] = field(default_factory=Counter[str])
    letters: int = 0
    to_send_back: int = 0
    not_sent: int = 0
    sent_twice: int = 0
    may_be_twice: int = 0
    sent_twice_unnoticed: int = 0
    still_open: int = 0
    campaigns: int = 0
    seconds: float = 0.0


@contextlib.contextmanager
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server with a migrated database `gateway`."""
    home = Path(tempfile.mkdtemp(prefix="redrive-gateway-"))
    server = EmbeddedPostgres(home, NEWEST, settings={"log_min_messages": "fatal"})
    with guarded(home, NEWEST):
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as conn:
            conn.execute("create database gateway")
        with connect(server.url("gateway")) as conn:
            migrate(conn)
        yield server


class Run:
    """One run: messages die, parts are killed, and the dead letters are counted."""

    def __init__(
        self, broker: Broker, server: EmbeddedPostgres, home: Path, seed: int
    ) -> None:
        self._broker = broker
        self._server = server
        self._home = home
        self._random = random.Random(seed)
        self._file = home / "faults.yaml"
        source = {"url": broker.url, "queue": DEAD, "verdict_seconds": 1}
        self._file.write_text(json.dumps({"rabbitmq": {"orders": source}}))
        self._gateway = self._start()

    def _start(self) -> Worker:
        url = self._server.url("gateway")
        return Worker(
            url,
            self._home,
            command="gateway",
            redrive_gateway=str(self._file),
            redrive_slots=16,
            redrive_heartbeat_ttl=5,
        )

    def end(self) -> None:
        """End the gateway."""
        self._gateway.end()

    def kill_gateway(self) -> None:
        """Kill the gateway with SIGKILL, and start another one."""
        self._gateway.end()
        self._gateway = self._start()

    def kill_broker(self) -> None:
        """Kill the broker with SIGKILL, and start it again."""
        self._broker.kill()
        self._broker.start()

    def kill_postgres(self) -> None:
        """Stop Postgres as a crash does, and start it again."""
        self._server.stop("immediate")
        self._server.start()

    def take_in(self, found: Found, kills: int) -> None:
        """Take in all messages, and kill a part each time this number more has arrived."""
        self._kill(kills, found.messages, self._bodies, found.kills)
        self._until(lambda: self._bodies() >= found.messages)
        self._wait_for_empty()
        self._count(found)

    def send_back(self, found: Found, kills: int) -> None:
        """Send the messages back by campaigns, and kill parts as above."""
        with self._broker.channel() as channel:
            channel.queue_delete(WORK)
            channel.queue_declare(WORK, durable=True)
        self._gateway = self._start()
        found.to_send_back = self._value(
            "select count(*) from redrive.dead_letters where payload ? 'back'"
        )
        self._kill(
            kills, found.to_send_back, self._arrived, found.kills_of_the_way_back
        )
        self._until(self._is_over)
        self._gateway.stop()
        self._count_back(found)

    def _arrived(self) -> int:
        self._send_the_rest()
        return self._broker.waiting(WORK)

    def _send_the_rest(self) -> None:
        """Start a campaign if none is active; one that waits for the broker is."""
        if self._value(LEFT) and not self._value(ACTIVE):
            plan = self._campaign("plan", "--where", "payload.back=true")["plan"]
            why = ("--rate", str(RATE), "--yes", "--why", "a test of faults")
            self._campaign("start", str(plan), *why)

    def _campaign(self, *arguments: str) -> Any:
        """Run `redrive campaign`, and return its JSON.

        Raises:
            OSError: the command failed, perhaps because Postgres was away.
        """
        url = {"REDRIVE_DATABASE_URL": self._server.url("gateway")}
        ran = subprocess.run(
            (sys.executable, "-m", "redrive", "campaign", *arguments, "--json"),
            env=os.environ | url | {"REDRIVE_ACTOR": "tester"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise OSError(ran.stderr)
        return json.loads(ran.stdout.splitlines()[-1])

    def _kill(
        self, kills: int, total: int, done: Callable[[], int], killed: Counter[str]
    ) -> None:
        for number, (name, kill) in enumerate(self._parts(kills), 1):
            goal = number * total // (kills + 1)
            self._until(lambda goal=goal: done() >= goal)
            kill()
            killed[name] += 1
            if number % 10 == 0:
                print(f"{number} of {kills} kills, {goal} messages", flush=True)

    def _is_over(self) -> bool:
        """Return True if all are sent and judged."""
        self._send_the_rest()
        return not any(map(self._value, (LEFT, ACTIVE, JOBS)))

    def _parts(self, kills: int) -> list[tuple[str, Callable[[], None]]]:
        """Draw what is killed: mostly the gateway, which starts fast."""
        every = [
            ("gateway", self.kill_gateway),
            ("postgres", self.kill_postgres),
            ("broker", self.kill_broker),
        ]
        drawn = self._random.choices(every, weights=[6, 3, 1], k=max(0, kills - 3))
        return [*every[:kills], *drawn]

    def _wait_for_empty(self) -> None:
        """Wait until no message is left, acknowledged or not."""
        self._until(lambda: self._broker.waiting(DEAD) == 0)
        self._until(lambda: self._gateway.metric("redrive_gateway_waiting") == 0)
        self._gateway.stop()

    def _bodies(self) -> int:
        return self._value(
            "select count(distinct payload ->> 'n') from redrive.dead_letters"
        )

    def _value(self, query: Any) -> int:
        with connect(self._server.url("gateway")) as conn:
            (value,) = conn.execute(query).fetchone() or (0,)
        return int(value)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.Error, OSError, pika.exceptions.AMQPError):
                if condition():
                    return
            time.sleep(0.3)
        msg = f"the gateway does not get on:\n{self._gateway.log.read_text()[-3000:]}"
        raise AssertionError(msg)

    def _count(self, found: Found) -> None:
        with connect(self._server.url("gateway")) as conn:
            rows = conn.execute(
                """
                select count(*), count(distinct payload ->> 'n'),
                       count(*) filter (where headers @> '{"gateway": {"possible_duplicate": true}}'),
                       count(*) filter (where has_id) - count(distinct payload ->> 'n')
                                                        filter (where has_id)
                from (select *, headers #> '{gateway,origin,properties,message_id}' is not null
                                as has_id
                      from redrive.dead_letters) d"""
            ).fetchone() or (0, 0, 0, 0)
        total, distinct, counted, with_id = map(int, rows)
        found.lost = found.messages - distinct
        found.doubles = total - distinct
        found.counted_doubles = counted
        found.doubles_with_id = with_id
        found.left_in_queue = self._broker.waiting(DEAD)
        found.letters = total

    def _count_back(self, found: Found) -> None:
        arrived = Counter(
            properties.headers["redrive-job"].partition(".")[0]
            for properties, _ in self._broker.take(WORK)
        )
        twice = {job for job, times in arrived.items() if times > 1}
        noticed = self._noticed()
        found.not_sent = found.to_send_back - len(arrived)
        found.sent_twice = len(twice)
        found.may_be_twice = len(noticed)
        found.sent_twice_unnoticed = len(twice - noticed)
        found.still_open = self._value(LEFT)
        found.campaigns = self._value("select count(*) from redrive.campaigns")

    def _noticed(self) -> set[str]:
        """Return the jobs that a gateway has logged as sent again."""
        noticed: set[str] = set()
        for log in self._home.glob("worker-*.log"):
            text = log.read_text(errors="replace")
            noticed.update(re.findall(r"job (\d+) is sent again", text))
        return noticed


def die(broker: Broker, messages: int, back: int) -> None:
    """Let messages die; every second one has a message_id."""
    import pika

    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD,
        "x-message-ttl": 0,
    }
    with broker.channel() as channel:
        channel.queue_declare(DEAD, durable=True)
        channel.queue_declare(WORK, durable=True, arguments=arguments)
    connection = broker.connect()
    channel = connection.channel()
    for n in range(messages):
        about = pika.BasicProperties(
            delivery_mode=2, message_id=f"m-{n}" if n % 2 else None
        )
        body: dict[str, Any] = {"n": n} | ({"back": True} if n < back else {})
        channel.basic_publish("", WORK, json.dumps(body).encode(), about)
    connection.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while broker.waiting(DEAD) < messages and time.monotonic() < deadline:
        time.sleep(0.1)
    assert broker.waiting(DEAD) == messages


def run(
    broker: Broker, home: Path, messages: int, *, back: int, kills: int, seed: int
) -> Found:
    """Let messages die, take them in, and send some back; half of the kills on each way."""
    die(broker, messages, back)
    found = Found(messages)
    began = time.monotonic()
    with postgres() as server:
        running = Run(broker, server, home, seed)
        try:
            running.take_in(found, kills // 2)
            print(found, flush=True)
            running.send_back(found, kills - kills // 2)
        finally:
            running.end()
    found.seconds = round(time.monotonic() - began, 1)
    return found


def main() -> None:
    """Run with the sizes of the command line, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument(
        "--back", type=int, default=20_000, help="messages to send back"
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-gateway-") as name:
        home = Path(name)
        broker = Broker(home)
        try:
            print(run(broker, home, **vars(chosen)))
        finally:
            broker.end()


if __name__ == "__main__":
    main()
