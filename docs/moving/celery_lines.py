"""Convert Celery tasks to lines for Redrive.

Input is results of failed tasks, or messages of the broker.

celery_lines.py dead < results.jsonl      for: redrive dlq import - --source celery
celery_lines.py waiting < messages.jsonl  for: redrive enqueue -

The backend stores a result under celery-task-meta-ID. If `result_extended` is on, the
result names the task and its arguments. Other results cannot be moved, and stderr names
them. A message has body, headers and properties. It may come from a dead letter queue
of RabbitMQ.
"""

import base64
import json
import re
import sys
from typing import Any


def name_of(text: str) -> str:
    """Return the name in the form that Redrive allows."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:63]


def payload_of(args: Any, kwargs: Any) -> dict[str, Any]:
    """Return only the keyword arguments if the task has no others."""
    args, kwargs = args or [], kwargs or {}
    return {"args": args, "kwargs": kwargs} if args else kwargs


def of_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return the job in a message (protocol 2)."""
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
    """Return a line for `redrive enqueue -`; its key prevents duplicates."""
    headers = message["headers"]
    due = {"run_at": headers["eta"]} if headers.get("eta") else {}
    return of_message(message) | {"idempotency_key": headers["id"], **due}


def dead(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return a line for an import: of a failed result, or of a rejected message."""
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
