"""Messages of an SQS queue, as `aws sqs receive-message` prints them, as lines for Redrive.

sqs_lines.py dead KIND < messages.json     for: redrive dlq import - --source QUEUE
sqs_lines.py waiting KIND < messages.json  for: redrive enqueue -

Several answers may follow each other. KIND holds for all that have no attribute `kind`. A body that
is no JSON object becomes {"body": ...}.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def messages(text: str) -> Iterator[dict[str, Any]]:
    """The messages of all answers; an empty queue answers with nothing."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        answer, at = decoder.raw_decode(text, at)
        yield from answer.get("Messages", [])


def payload_of(body: str) -> dict[str, Any]:
    """The body, as an object."""
    try:
        value = json.loads(body)
    except ValueError:
        value = body
    return value if isinstance(value, dict) else {"body": value}


def line(message: dict[str, Any], kind: str) -> dict[str, Any]:
    """What both have in common."""
    own = message.get("MessageAttributes", {})
    texts = {
        name: value["StringValue"]
        for name, value in own.items()
        if "StringValue" in value
    }
    return {
        "kind": texts.pop("kind", kind),
        "payload": payload_of(message["Body"]),
        "headers": texts,
    }


def dead(message: dict[str, Any], kind: str) -> dict[str, Any]:
    """A line for an import. SQS keeps no error: what it was moved for is all there is."""
    system = message.get("Attributes", {})
    sent = system.get("SentTimestamp")
    origin = system.get("DeadLetterQueueSourceArn", "").rpartition(":")[2]
    told = f"received too often from {origin}" if origin else "received too often"
    return line(message, kind) | {
        "source_id": message["MessageId"],
        "error_class": "sqs.MaxReceiveCount",
        "message": told,
        "attempts": max(1, int(system.get("ApproximateReceiveCount", 1)) - 1),
        **({"created_at": int(sent) / 1000} if sent else {}),
    }


def waiting(message: dict[str, Any], kind: str) -> dict[str, Any]:
    """A line for `redrive enqueue -`; with its key none comes twice."""
    group = message.get("Attributes", {}).get("MessageGroupId")
    return line(message, kind) | {
        "idempotency_key": message["MessageId"],
        **({"ordering_key": group} if group else {}),
    }


if __name__ == "__main__":
    _, what, its_kind = sys.argv
    for found in messages(sys.stdin.read()):
        print(json.dumps({"dead": dead, "waiting": waiting}[what](found, its_kind)))
