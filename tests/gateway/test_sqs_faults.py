"""Nothing of SQS is lost while gateways are killed, and each message is one dead letter."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.cli.conftest import Redrive
from tests.flow.harness import Worker, wait_for
from tests.gateway.test_sqs import WHY, Queues, endpoint, name, start
from tests.postgres import Database

__all__ = ["endpoint", "name", "start"]

MESSAGES = 200
PATIENCE = 600
"""Seconds. A message that a killed gateway had received is visible again after 120."""


def dead(database: Database, condition: str = "true") -> int:
    query = f"select count(*) from redrive.dead_letters where {condition}"  # constants
    return database.value(query)  # pyright: ignore[reportArgumentType]


@pytest.mark.waits
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

    running = start(queues)
    for share in (1, 2):
        wait_for(lambda share=share: dead(database) >= share * MESSAGES // 4)
        running.end()
        running = start(queues)
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
        running = start(queues)
        logs.append(running.log)
    wait_for(lambda: dead(database, "state = 'resolved'") == MESSAGES, PATIENCE)

    arrived: Counter[str] = Counter()
    while found := queues.receive(600):
        arrived.update(message["Body"] for message in found)
    again = sum(log.read_text().count("is sent again") for log in logs)
    assert len(arrived) == MESSAGES
    assert arrived.total() - MESSAGES <= again
