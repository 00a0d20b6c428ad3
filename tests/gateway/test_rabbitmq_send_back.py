"""Redriven dead letters go back to a real RabbitMQ, and are judged by their return."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, LiteralString

import pytest

from redrive import enqueue
from redrive.extras.gateway import tables
from tests.cli.conftest import Redrive
from tests.flow.harness import wait_for
from tests.gateway.broker import Broker, consumer
from tests.gateway.conftest import Gateway
from tests.gateway.proxy import Proxy
from tests.postgres import Database

tables.tolerate()  # the tests' own client, too, reads and writes floats

Sources = Callable[..., Path]
WHY = ("--yes", "--why", "the rates are there")
SEND_BACK = ("dlq", "redrive", "--kind", "rabbitmq.orders", *WHY)


@pytest.fixture
def file(sources: Sources, broker: Broker, queue: str) -> Path:
    """A file of one source, `orders`, with a short time until the verdict."""
    about = {"url": broker.url, "queue": f"{queue}.dead", "verdict_seconds": 2}
    return sources(rabbitmq={"orders": about})


@pytest.fixture
def patient_file(file: Path) -> Path:
    """The same source. On a busy machine, too, a message comes back before the verdict."""
    about = json.loads(file.read_text())
    about["rabbitmq"]["orders"]["verdict_seconds"] = 15
    patient = file.with_name("patient.yaml")
    patient.write_text(json.dumps(about))
    return patient


FED: LiteralString = """
    select extract(epoch from min(settled_at))::float8 from (
        select settled_at from redrive.dead_letters
        where campaign = (select max(id) from redrive.campaigns)
        order by settled_at offset 3) as after_its_canaries"""


def states(database: Database) -> list[tuple[int, int, str, str | None]]:
    """Generation, state and outcome of each dead letter."""
    return database.rows(
        "select id, redrives, state, outcome from redrive.dead_letters"
        " order by id, redrives"
    )


def die(broker: Broker, queue: str, count: int) -> None:
    """Let messages die in the queue."""
    with broker.channel() as channel:
        for n in range(count):
            channel.basic_publish("", queue, json.dumps({"n": n}).encode())
    assert broker.reject(queue) == count


def taken(database: Database, count: int) -> None:
    wait_for(lambda: len(states(database)) == count)


@pytest.fixture
def one_letter(
    broker: Broker, queue: str, file: Path, gateway: Gateway, database: Database
) -> None:
    """One message has died, and a gateway has taken it in."""
    die(broker, queue, 1)
    gateway(file)
    taken(database, 1)


def test_a_message_goes_back_as_it_was_and_its_job_succeeds(
    broker: Broker,
    queue: str,
    file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    sent = {
        "content_type": "application/json",
        "message_id": "m-17",
        "correlation_id": "c",
        "priority": 4,
        "headers": {
            "tenant": "shop",
            "raw": b"\x00\xff",
            "long": 2**40,
            "share": 1.5,
            "whole": 1.0,
        },
    }
    broker.die(queue, b'{"order":17}', **sent)
    broker.die(queue, b"\xff\x00binary")
    gateway(file)
    taken(database, 2)
    assert redrive(*SEND_BACK).code == 0
    found = wait_for(lambda: broker.waiting(queue) == 2 and broker.take(queue))
    by_body = {body: properties for properties, body in found}
    back = by_body[b'{"order":17}']
    assert set(by_body) == {b'{"order":17}', b"\xff\x00binary"}
    assert back.headers.pop("redrive-job")
    assert {name: getattr(back, name) for name in sent} == sent
    assert back.delivery_mode == 2
    wait_for(lambda: [s[3] for s in states(database)] == ["succeeded"] * 2)
    assert states(database)[0][1:] == (0, "resolved", "succeeded")


def test_a_message_is_counted_if_its_confirmation_is_lost(
    broker: Broker,
    queue: str,
    sources: Sources,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    proxy = Proxy(broker.port)
    about = {"url": proxy.url, "queue": f"{queue}.dead", "verdict_seconds": 2}
    die(broker, queue, 1)
    running = gateway(sources(rabbitmq={"orders": about}))
    taken(database, 1)
    proxy.cuts.set()
    redrive(*SEND_BACK)
    wait_for(lambda: [s[3] for s in states(database)] == ["succeeded"])
    proxy.close()
    assert proxy.cut == 1
    assert broker.waiting(queue) == 2
    assert running.metric("redrive_gateway_sent_total") == 1
    assert running.metric("redrive_gateway_sent_again_total") == 1
    job = states(database)[0][0]
    assert (
        f"job {job} is sent again: a confirmation was lost" in running.log.read_text()
    )


def test_an_encrypted_message_goes_back_as_it_was(
    broker: Broker,
    queue: str,
    file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
    keys: Callable[..., Path],
) -> None:
    keyring = keys("new")
    broker.die(queue, b'{"card":"Zx9-canary-77"}', content_type="application/json")
    gateway(file, redrive_encryption_keys_file=keyring)
    taken(database, 1)
    stored = database.rows("select to_jsonb(d) from redrive.dead_letters d")
    assert "Zx9-canary-77" not in str(stored)
    assert redrive(*SEND_BACK).code == 0
    found = wait_for(lambda: broker.waiting(queue) and broker.take(queue))
    assert [body for _, body in found] == [b'{"card":"Zx9-canary-77"}']


def test_a_producer_cannot_send_a_message(
    broker: Broker,
    queue: str,
    file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    forged = {"origin": {"queue": queue}, "form": "object"}
    enqueue(
        database.conn,
        "rabbitmq.orders",
        {"n": 1},
        queue="gateway",
        headers={"gateway": forged, "source_id": "x"},
    )
    gateway(file)
    taken(database, 1)
    assert [state for _, _, state, _ in states(database)] == ["open"]
    assert broker.waiting(queue) == 0

    assert redrive(*SEND_BACK).code == 0
    again = "select message from redrive.dead_letters where redrives = 1"
    (message,) = wait_for(lambda: database.column(again))
    assert "not imported" in message
    assert broker.waiting(queue) == 0


@pytest.mark.usefixtures("one_letter")
def test_an_edited_payload_is_what_goes_back(
    broker: Broker, queue: str, redrive: Redrive
) -> None:
    patch = '[{"op": "replace", "path": "/n", "value": "one"}]'
    edited = redrive("dlq", "edit", "--kind", "rabbitmq.orders", "--patch", patch, *WHY)
    assert edited.code == 0, edited.err
    assert redrive(*SEND_BACK).code == 0
    found = wait_for(lambda: broker.waiting(queue) and broker.take(queue))
    assert [body for _, body in found] == [b'{"n":"one"}']


def test_a_message_that_comes_back_is_the_same_dead_letter_again(
    broker: Broker,
    queue: str,
    patient_file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    die(broker, queue, 1)
    running = gateway(patient_file)
    taken(database, 1)
    with consumer(broker, queue, lambda _body, _headers: False) as seen:
        assert redrive(*SEND_BACK).code == 0
        wait_for(lambda: len(states(database)) == 2)
        assert len(seen) == 1
    [(job, *first), (same, *second)] = states(database)
    assert job == same
    assert first == [0, "redriven", "dead_again"]
    assert second == [1, "open", None]
    shown = redrive("dlq", "show", str(job), "--json").json
    assert [f["message"] for f in shown["failures"]] == [
        f"rejected in the queue {queue}"
    ] * 2
    [group] = redrive("dlq", "groups", "--json").lines
    assert group["open"] == 1, "the cause is not fixed"
    assert running.metric("redrive_gateway_returned_total") == 1


def test_a_message_that_comes_back_for_another_cause_is_in_a_group_of_its_own(
    broker: Broker,
    queue: str,
    patient_file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    """Spring publishes a message again, with its headers and the error."""
    die(broker, queue, 1)
    gateway(patient_file)
    taken(database, 1)
    redrive(*SEND_BACK)
    [(sent, body)] = wait_for(lambda: broker.waiting(queue) and broker.take(queue))
    error = {"x-exception-message": "no rate for XAU"}
    broker.publish(f"{queue}.dead", body, headers=sent.headers | error)
    wait_for(lambda: len(states(database)) == 2)
    [(job, *_), (same, *_)] = states(database)
    shown = redrive("dlq", "show", str(job), "--json").json
    assert job == same
    assert shown["message"].endswith("for another cause than before")
    assert shown["failures"][0]["fingerprint"] != shown["failures"][1]["fingerprint"]


@pytest.mark.usefixtures("one_letter")
def test_a_message_that_comes_back_late_is_a_new_dead_letter(
    broker: Broker, queue: str, redrive: Redrive, database: Database
) -> None:
    redrive(*SEND_BACK)
    wait_for(lambda: [s[3] for s in states(database)] == ["succeeded"])
    assert broker.reject(queue) == 1
    wait_for(lambda: len(states(database)) == 2)
    [(job, *_), (other, *second)] = states(database)
    assert job != other
    assert second == [0, "open", None]
    notes = database.value(
        "select headers -> 'gateway' -> 'came_back_from' from redrive.dead_letters"
        " where id = %s",
        other,
    )
    assert notes == job


@pytest.mark.usefixtures("one_letter")
def test_a_queue_that_is_gone_is_named(
    broker: Broker, queue: str, redrive: Redrive, database: Database
) -> None:
    with broker.channel() as channel:
        channel.queue_delete(queue)
    redrive(*SEND_BACK)
    wait_for(lambda: len(states(database)) == 2)
    [job, _] = {state[0] for state in states(database)} | {0}
    shown = redrive("dlq", "show", str(max(job, _))).out
    assert "no queue is bound" in shown
    assert queue in shown


@pytest.mark.long
def test_a_campaign_stops_after_its_canaries_if_the_cause_is_not_fixed(
    broker: Broker,
    queue: str,
    file: Path,
    patient_file: Path,
    gateway: Gateway,
    redrive: Redrive,
    database: Database,
) -> None:
    die(broker, queue, 150)
    patient = gateway(patient_file)
    taken(database, 150)
    [group] = redrive("dlq", "groups", "--json").lines
    assert group["open"] == 150

    def campaign(rate: int, *options: str) -> dict[str, Any]:
        which = ("--kind", "rabbitmq.orders", *options)
        planned = redrive("campaign", "plan", *which, "--json")
        plan = planned.json["plan"]
        went = redrive(
            "campaign", "start", str(plan), "--rate", str(rate), *WHY, "--json"
        )
        assert went.code == 0, went.err
        wait_for(lambda: state(plan) in {"aborted", "done"})
        return redrive("campaign", "show", str(plan), "--json").json

    def state(plan: int) -> str:
        return database.value("select state from redrive.campaigns where id = %s", plan)

    is_fixed = False
    with consumer(broker, queue, lambda _body, _headers: is_fixed) as seen:
        stopped = campaign(50)
        assert stopped["state"] == "aborted"
        assert len(seen) == 3
        patient.stop()
        gateway(file)
        is_fixed = True
        seen.clear()
        healthy = campaign(25, "--include-quarantined")
        assert healthy["state"] == "done"
        assert len(seen) == 150
    # No faster than asked for. A busy machine may hold up any of them.
    took = seen[-1][0] + time.time() - time.monotonic() - database.value(FED)
    assert 147 / took <= 100
    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 0
    )
