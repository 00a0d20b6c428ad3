"""Tasks of Celery as lines for Redrive: results of failed ones, and messages of its broker.

celery_lines.py dead < results.jsonl      for: redrive dlq import - --source celery
celery_lines.py waiting < messages.jsonl  for: redrive enqueue -

A result is what the backend holds under celery-task-meta-ID. It names the task and what it was
given where `result_extended` is on; others cannot be moved, and are named on stderr. A message is
what the broker holds, also that in a dead letter queue of RabbitMQ: body, headers, properties.
"""

import base64
import json
import re
import sys
from typing import Any


def name_of(text: str) -> str:
    """A name as Redrive takes it."""
    return re.sub(r"[^a-z0-9_.-]", "_", text.lower())[:63]


def payload_of(args: Any, kwargs: Any) -> dict[str, Any]:
    """The keywords alone, where a task was given no more."""
    args, kwargs = args or [], kwargs or {}
    return {"args": args, "kwargs": kwargs} if args else kwargs


def of_message(message: dict[str, Any]) -> dict[str, Any]:
    """The job in a message (protocol 2)."""
    headers, body = message["headers"], message["body"]
    if message.get("properties", {}).get("body_encoding") == "base64":
        body = base64.b64decode(body)
    args, kwargs, _ = json.loads(body)
    where = (
        message.get("properties", {})
        .get("delivery_info", {})
        .get("routing_key", "celery")
    )
    return {
        "kind": name_of(headers["task"]),
        "queue": name_of(where),
        "payload": payload_of(args, kwargs),
    }


def waiting(message: dict[str, Any]) -> dict[str, Any]:
    """A line for `redrive enqueue -`; with its key none comes twice."""
    headers = message["headers"]
    due = {"run_at": headers["eta"]} if headers.get("eta") else {}
    return of_message(message) | {"idempotency_key": headers["id"], **due}


def dead(found: dict[str, Any]) -> dict[str, Any] | None:
    """A line for an import: of a result that failed, or of a message nobody could handle."""
    if "body" in found:
        return of_message(found) | {
            "source_id": found["headers"]["id"],
            "attempts": found["headers"].get("retries", 0) + 1,
            "error_class": "celery.Rejected",
            "message": "the broker set it aside; Celery kept no error with it",
        }
    if found["status"] != "FAILURE":
        return None
    if not found.get("name"):
        print(
            f"{found['task_id']}: its task is not known, see result_extended",
            file=sys.stderr,
        )
        return None
    error = found["result"]
    module = error.get("exc_module") or "builtins"
    name = (
        error["exc_type"] if module == "builtins" else f"{module}.{error['exc_type']}"
    )
    said = error["exc_message"]
    return {
        "source_id": found["task_id"],
        "kind": name_of(found["name"]),
        "queue": name_of(found.get("queue") or "celery"),
        "payload": payload_of(found.get("args"), found.get("kwargs")),
        "error_class": name,
        "message": " ".join(map(str, said)) if isinstance(said, list) else str(said),
        "stack": found.get("traceback") or "",
        "attempts": (found.get("retries") or 0) + 1,
        "died_at": found["date_done"],
    }


if __name__ == "__main__":
    for text in filter(str.strip, sys.stdin):
        line = {"dead": dead, "waiting": waiting}[sys.argv[1]](json.loads(text))
        if line:
            print(json.dumps(line))
