"""A RabbitMQ server of the tests' own, which they may kill and start again."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pika
import pika.exceptions

from redrive.database.embedded import free_port
from tests.programs import missing

logging.getLogger("pika").setLevel(logging.CRITICAL)

HOMES = Path("/usr/lib/rabbitmq/lib")


def program() -> Path:
    """The start script of Debian's package."""
    found = sorted(HOMES.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found or shutil.which("epmd") is None:
        missing("rabbitmq-server", "Debian: apt-get install rabbitmq-server")
    return found[-1]


class Broker:
    """One node, with its data in a directory."""

    def __init__(self, home: Path) -> None:
        self._program = program()
        self._log = (home / "log").open("ab")
        self.port, epmd_port = free_port(), free_port()
        self._environment = os.environ | {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"redrive{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "logs"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "none"),
        }
        self._epmd = self._run("epmd", "-port", str(epmd_port))
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        """Its URL, as the file of sources takes it."""
        return f"amqp://127.0.0.1:{self.port}/%2f"

    def start(self) -> None:
        """Start, and wait until it answers.

        It is started again if it ends: for a moment after a kill, its name and its
        port can still be taken.
        """
        self._server = self._run(str(self._program))
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, pika.exceptions.AMQPError):
                self.connect().close()
                return
            if self._server.poll() is not None:
                self._server = self._run(str(self._program))
            time.sleep(0.2)

        msg = f"the broker did not answer; it last ended with {self._server.poll()}"
        raise RuntimeError(msg)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()

    def end(self) -> None:
        """End it for good."""
        self.kill()
        self._epmd.kill()
        self._epmd.wait()
        self._log.close()

    def connect(self) -> Any:
        """Open a connection."""
        return pika.BlockingConnection(pika.URLParameters(self.url))

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """Open a channel that confirms what is published."""
        connection = self.connect()
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()

    def declare(self, name: str, dead: str, exchange: str = "") -> None:
        """Declare a work queue, and the dead letter queue that it rejects to."""
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        with self.channel() as channel:
            channel.queue_declare(dead, durable=True)
            channel.queue_declare(name, durable=True, arguments=arguments)
            if exchange:
                channel.exchange_declare(exchange, "fanout", durable=True)
                channel.queue_bind(name, exchange)

    def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        """Publish one persistent message, confirmed."""
        about = pika.BasicProperties(delivery_mode=2, **properties)
        with self.channel() as channel:
            channel.basic_publish("", queue, body, about, mandatory=True)

    def reject(self, queue: str) -> int:
        """Reject all messages that wait in a queue; return how many."""
        rejected = 0
        with self.channel() as channel:
            while True:
                method, _, _ = channel.basic_get(queue)
                if method is None:
                    return rejected
                channel.basic_reject(method.delivery_tag, requeue=False)
                rejected += 1

    def die(self, queue: str, *bodies: bytes, **properties: Any) -> None:
        """Let messages die in a queue: each is published, and rejected."""
        for body in bodies:
            self.publish(queue, body, **properties)
        assert self.reject(queue) == len(bodies)

    def take(self, queue: str) -> list[tuple[Any, bytes]]:
        """Take all messages that wait in a queue: properties and body."""
        taken: list[tuple[Any, bytes]] = []
        with self.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return taken
                taken.append((properties, body))

    def waiting(self, queue: str) -> int:
        """How many messages are ready in a queue."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)


@contextlib.contextmanager
def consumer(
    broker: Broker, queue: str, accepts: Callable[[bytes, Mapping[str, Any]], bool]
) -> Iterator[list[tuple[float, Any, bytes]]]:
    """Consume a queue in a thread; reject what `accepts` does not accept."""
    import threading

    seen: list[tuple[float, Any, bytes]] = []
    stop = threading.Event()

    def run() -> None:
        with broker.channel() as channel:
            for method, properties, body in channel.consume(
                queue, inactivity_timeout=0.1
            ):
                if stop.is_set():
                    return
                if method is None:
                    continue
                seen.append((time.monotonic(), properties, body))
                if accepts(body, properties.headers or {}):
                    channel.basic_ack(method.delivery_tag)
                else:
                    channel.basic_reject(method.delivery_tag, requeue=False)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(30)
