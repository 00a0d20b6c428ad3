"""Nothing of SQS is lost while gateways are killed, and each message is one dead letter."""

import json
from collections import Counter
from collections.abc import Callable

import pytest
from moto.backends import get_backend

from tests.cli.conftest import Redrive
from tests.flow.harness import Worker, wait_for
from tests.gateway.test_sqs import REGION, WHY, Queues, endpoint, name, start
from tests.postgres import Database

__all__ = ["endpoint", "name", "start"]

MESSAGES = 200
PATIENCE = 600
"""Seconds."""


def end_visibility(queues: Queues) -> None:
    """Let SQS deliver all received messages again, as it does after two minutes."""
    name = queues.dead.rpartition("/")[2]
    [account] = get_backend("sqs").values()
    for message in account[REGION].get_queue(name)._messages:
        message.change_visibility(0)


def dead(database: Database, condition: str = "true") -> int:
    query = f"select count(*) from redrive.dead_letters where {condition}"  # constants
    return database.value(query)  # pyright: ignore[reportArgumentType]


@pytest.mark.long
def test_kills_of_gateways_lose_nothing(
    endpoint: str,
    name: str,
    start: Callable[..., Worker],
    redrive: Redrive,
    database: Database,
) -> None:
    queues = Queues(endpoint, name)
    for n in range(MESSAGES):
        queues.send(json.dumps({"n": n}))
    queues.die()

    running = start(queues, heartbeat_ttl=5)
    for share in (1, 2):
        wait_for(lambda share=share: dead(database) >= share * MESSAGES // 4)
        running.end()
        end_visibility(queues)
        running = start(queues, heartbeat_ttl=5)
    wait_for(lambda: queues.waiting(queues.dead) == 0, PATIENCE)
    assert dead(database) == MESSAGES
    bodies = database.column("select payload ->> 'n' from redrive.dead_letters")
    assert len(set(bodies)) == MESSAGES

    redrive("dlq", "redrive", "--all", "--yes", "--canaries", "0", *WHY[1:])
    logs = [running.log]
    for share in (1, 2):
        wait_for(
            lambda share=share: queues.waiting(queues.work) >= share * MESSAGES // 4
        )
        running.end()
        running = start(queues, heartbeat_ttl=5)
        logs.append(running.log)
    wait_for(lambda: dead(database, "state = 'resolved'") == MESSAGES, PATIENCE)

    arrived: Counter[str] = Counter()
    while found := queues.receive(600):
        arrived.update(message["Body"] for message in found)
    again = sum(log.read_text().count("is sent again") for log in logs)
    assert len(arrived) == MESSAGES
    assert arrived.total() - MESSAGES <= again
