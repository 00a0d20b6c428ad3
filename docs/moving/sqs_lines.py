"""Convert the output of `aws sqs receive-message` to lines for Redrive.

sqs_lines.py dead KIND < messages.json     for: redrive dlq import - --source QUEUE
sqs_lines.py waiting KIND < messages.json  for: redrive enqueue -

The input may have several answers. KIND applies to messages that have no attribute
`kind`. A body that is not a JSON object becomes {"body": ...}.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any


def messages(text: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of all answers. The answer of an empty queue is empty."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        answer, at = decoder.raw_decode(text, at)
        yield from answer.get("Messages", [])


def payload_of(body: str) -> dict[str, Any]:
    """Return the body as an object."""
    try:
        value = json.loads(body)
    except ValueError:
        value = body
    return value if isinstance(value, dict) else {"body": value}


def line(message: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of each line."""
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
    """Return a line for an import. SQS keeps only the cause of the move as an error."""
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
    """Return a line for `redrive enqueue -`; its key prevents duplicates."""
    group = message.get("Attributes", {}).get("MessageGroupId")
    return line(message, kind) | {
        "idempotency_key": message["MessageId"],
        **({"ordering_key": group} if group else {}),
    }


if __name__ == "__main__":
    _, what, its_kind = sys.argv
    for found in messages(sys.stdin.read()):
        print(json.dumps({"dead": dead, "waiting": waiting}[what](found, its_kind)))
