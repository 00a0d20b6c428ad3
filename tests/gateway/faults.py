"""Kills of gateway, broker and Postgres while dead letters are taken in.

python -m tests.gateway.faults --messages 100000 --kills 200
"""

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from redrive.database.connect import connect
from redrive.database.embedded import NEWEST, EmbeddedPostgres
from redrive.database.migrate import migrate
from tests.flow.harness import Worker
from tests.gateway.broker import Broker
from tests.postgres import guarded

WORK, DEAD = "orders", "orders.dead"
PATIENCE_SECONDS = 600


@dataclass
class Found:
    """What a run found. `doubles`: dead letters of a message beyond its first."""

    messages: int
    kills: dict[str, int] = field(default_factory=dict[str, int])
    lost: int = 0
    doubles: int = 0
    counted_doubles: int = 0
    doubles_with_id: int = 0
    left_in_queue: int = 0
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
        self._file.write_text(
            f'rabbitmq: {{orders: {{url: "{broker.url}", queue: {DEAD}}}}}'
        )
        self._gateway = self._start()

    def _start(self) -> Worker:
        url = self._server.url("gateway")
        return Worker(
            url, self._home, command="gateway", redrive_gateway=str(self._file)
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

    def run(self, messages: int, kills: int) -> Found:
        """Kill a part each time that so many more messages were taken in."""
        found = Found(messages)
        began = time.monotonic()
        parts = self._parts(kills)
        for number, (name, kill) in enumerate(parts, 1):
            self._wait(number * messages // (kills + 1))
            kill()
            found.kills[name] = found.kills.get(name, 0) + 1
        self._wait(messages)
        self._wait_for_empty()
        found.seconds = round(time.monotonic() - began, 1)
        self._count(found)
        return found

    def _parts(self, kills: int) -> list[tuple[str, Callable[[], None]]]:
        """Draw what is killed: mostly the gateway, which starts fast."""
        every = [
            ("gateway", self.kill_gateway),
            ("postgres", self.kill_postgres),
            ("broker", self.kill_broker),
        ]
        drawn = self._random.choices(every, weights=[6, 3, 1], k=max(0, kills - 3))
        return [*every[:kills], *drawn]

    def _wait(self, count: int) -> None:
        self._until(lambda: self._bodies() >= count)

    def _wait_for_empty(self) -> None:
        """Wait until no message is left, acknowledged or not."""
        self._until(lambda: self._broker.waiting(DEAD) == 0)
        self._until(lambda: self._gateway.metric("redrive_gateway_waiting") == 0)
        self._gateway.stop()

    def _bodies(self) -> int:
        with connect(self._server.url("gateway")) as conn:
            (count,) = conn.execute(
                "select count(distinct payload ->> 'n') from redrive.dead_letters"
            ).fetchone() or (0,)
        return int(count)

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.Error, OSError):
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


def die(broker: Broker, messages: int) -> None:
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
        channel.basic_publish("", WORK, b'{"n": %d}' % n, about)
    connection.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while broker.waiting(DEAD) < messages and time.monotonic() < deadline:
        time.sleep(0.1)
    assert broker.waiting(DEAD) == messages


def run(broker: Broker, home: Path, messages: int, kills: int, seed: int) -> Found:
    """Let messages die, and take them in under kills."""
    die(broker, messages)
    with postgres() as server:
        running = Run(broker, server, home, seed)
        try:
            return running.run(messages, kills)
        finally:
            running.end()


def main() -> None:
    """Run with the sizes of the command line, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-gateway-") as name:
        home = Path(name)
        broker = Broker(home)
        try:
            print(run(broker, home, chosen.messages, chosen.kills, chosen.seed))
        finally:
            broker.end()


if __name__ == "__main__":
    main()
