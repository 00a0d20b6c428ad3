"""Dead letters of SQS come in, and go back; moto speaks its protocol."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from redrive.database.embedded import free_port
from redrive.errors import SettingsError
from redrive.extras.gateway.file import load
from tests.cli.conftest import Redrive
from tests.flow.harness import Worker, wait_for
from tests.gateway.conftest import Gateway
from tests.postgres import Database

Sources = Callable[..., Path]
WHY = ("--yes", "--why", "the rates are there")
SEND_BACK = ("dlq", "redrive", "--kind", "sqs.mail", *WHY)
KEYS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
REGION = "eu-central-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a server that speaks SQS."""
    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


class Queues:
    """A queue whose messages die after they were received once, and its dead letters."""

    def __init__(self, endpoint: str, name: str, **attributes: str) -> None:
        self.client: Any = boto3.client(
            "sqs",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )
        ending = ".fifo" if attributes else ""
        self.dead = self._create(f"{name}-dead{ending}", **attributes)
        arn = self.client.get_queue_attributes(
            QueueUrl=self.dead, AttributeNames=["QueueArn"]
        )["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        self.work = self._create(name + ending, RedrivePolicy=policy, **attributes)

    def _create(self, name: str, **attributes: str) -> str:
        made = self.client.create_queue(QueueName=name, Attributes=attributes)
        return str(made["QueueUrl"])

    def send(self, body: str, **about: Any) -> None:
        self.client.send_message(QueueUrl=self.work, MessageBody=body, **about)

    def receive(self, seconds: int = 0) -> list[dict[str, Any]]:
        return self.client.receive_message(
            QueueUrl=self.work,
            VisibilityTimeout=seconds,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
        ).get("Messages", [])

    def die(self) -> None:
        """Receive each message as often as it takes until none is there."""
        wait_for(lambda: not self.receive() and not self.receive())

    def waiting(self, url: str) -> int:
        found = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
            "Attributes"
        ]
        return int(found["ApproximateNumberOfMessages"]) + int(
            found["ApproximateNumberOfMessagesNotVisible"]
        )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own."""
    return request.node.name.split("[")[0].removeprefix("test_")


@pytest.fixture
def start(sources: Sources, gateway: Gateway, endpoint: str) -> Callable[..., Worker]:
    """Start a gateway of one source, `mail`."""

    def start(queues: Queues, *, heartbeat_ttl: int = 30, **more: Any) -> Worker:
        about = {
            "queue_url": queues.dead,
            "endpoint_url": endpoint,
            "region": REGION,
            "verdict_seconds": 2,
        } | more
        file = sources(sqs={"mail": about})
        return gateway(file, redrive_heartbeat_ttl=heartbeat_ttl, **KEYS)

    return start


def letters(database: Database) -> list[tuple[Any, ...]]:
    return database.rows(
        "select id, redrives, state, outcome, payload, kind, message"
        " from redrive.dead_letters order by id, redrives"
    )


def test_messages_come_in_and_go_back(
    endpoint: str,
    name: str,
    start: Callable[[Queues], Worker],
    redrive: Redrive,
    database: Database,
) -> None:
    queues = Queues(endpoint, name)
    about = {"tenant": {"DataType": "String", "StringValue": "shop"}}
    queues.send('{"n": 1}', MessageAttributes=about)
    queues.send("no json")
    queues.die()
    running = start(queues)
    wait_for(lambda: len(letters(database)) == 2)
    wait_for(lambda: queues.waiting(queues.dead) == 0)
    assert {json.dumps(row[4]) for row in letters(database)} == {
        '{"n": 1}',
        '{"body": "no json"}',
    }
    assert {row[5] for row in letters(database)} == {"sqs.mail"}
    assert {row[6] for row in letters(database)} == {"received too often"}
    assert database.column("select attempts from redrive.dead_letters") == [1, 1]
    assert redrive(*SEND_BACK).code == 0
    wait_for(lambda: queues.waiting(queues.work) == 2)
    found = {message["Body"]: message for message in queues.receive(600)}
    assert set(found) == {'{"n":1}', "no json"}
    back = found['{"n":1}']["MessageAttributes"]
    assert back.pop("redrive-job")
    assert back["tenant"]["StringValue"] == "shop"
    wait_for(lambda: [row[3] for row in letters(database)] == ["succeeded"] * 2)
    assert running.metric("redrive_gateway_taken_total", source="sqs.mail") == 2


def test_a_message_that_comes_back_is_the_same_dead_letter_again(
    endpoint: str,
    name: str,
    start: Callable[..., Worker],
    redrive: Redrive,
    database: Database,
) -> None:
    queues = Queues(endpoint, name)
    queues.send('{"n": 1}')
    queues.die()
    running = start(queues, verdict_seconds=15)
    wait_for(lambda: len(letters(database)) == 1)
    redrive(*SEND_BACK)
    wait_for(lambda: queues.receive() and not queues.receive())
    wait_for(lambda: len(letters(database)) == 2)
    (first, *_), (second, redrives, state, *_) = letters(database)
    assert (second, redrives, state) == (first, 1, "open")
    assert running.metric("redrive_gateway_returned_total", source="sqs.mail") == 1


def test_a_message_of_a_fifo_queue_keeps_its_group(
    endpoint: str,
    name: str,
    start: Callable[[Queues], Worker],
    redrive: Redrive,
    database: Database,
) -> None:
    queues = Queues(endpoint, name, FifoQueue="true")
    queues.send("{}", MessageGroupId="customer-7", MessageDeduplicationId="d")
    queues.die()
    start(queues)
    wait_for(lambda: len(letters(database)) == 1)
    redrive(*SEND_BACK)
    [message] = wait_for(lambda: queues.receive(600))
    assert message["Attributes"]["MessageGroupId"] == "customer-7"


def test_a_queue_that_is_gone_is_named(
    endpoint: str,
    name: str,
    start: Callable[..., Worker],
    redrive: Redrive,
    database: Database,
) -> None:
    queues = Queues(endpoint, name)
    queues.send("{}")
    queues.die()
    start(queues, origin_url=queues.work)
    wait_for(lambda: len(letters(database)) == 1)
    queues.client.delete_queue(QueueUrl=queues.work)
    redrive(*SEND_BACK)
    wait_for(lambda: len(letters(database)) == 2)
    shown = redrive("dlq", "show", str(letters(database)[0][0])).out
    assert "the queue does not exist" in shown


def test_a_source_whose_client_is_not_installed_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway served its other sources, and tried this one again and again."""
    file = tmp_path / "gateway.yaml"
    file.write_text("sqs: {old: {queue_url: 'https://sqs.example/dead'}}")
    monkeypatch.setattr("redrive.extras.gateway.file.find_spec", lambda _: None)

    with pytest.raises(SettingsError, match=r"sqs.old needs boto3.*'redrive\[sqs\]'"):
        load(file)
