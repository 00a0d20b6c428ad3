"""Convert Sidekiq jobs, as Redis stores them, to lines for Redrive.

redis-cli --raw zrange dead 0 -1 | sidekiq_lines.py dead | redrive dlq import - --source sidekiq
redis-cli --raw lrange queue:default 0 -1 | tac | sidekiq_lines.py waiting | redrive enqueue -
redis-cli --raw zrange schedule 0 -1 withscores | sidekiq_lines.py waiting | redrive enqueue -

For other queues in Redis, change the function `line`.
"""

import base64
import json
import re
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

YEAR_5000 = 1e11


def name_of(text: str) -> str:
    """Return the name for Redrive: Billing::ChargeJob becomes Billing.ChargeJob."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text.replace("::", "."))[:63]


def instant(told: float) -> float:
    """Return seconds since 1970. Sidekiq 8 stores milliseconds, older ones seconds."""
    return told / 1000 if told > YEAR_5000 else told


def line(job: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of each line. ActiveJob wraps its own class and arguments."""
    name, args = job["class"], job["args"]
    if "wrapped" in job:
        name, args = job["wrapped"], args[0]["arguments"]
    return {
        "kind": name_of(name),
        "queue": name_of(job.get("queue", "default")),
        "payload": {"args": args},
    }


def dead(job: dict[str, Any]) -> dict[str, Any]:
    """Return a line for an import."""
    stack = job.get("error_backtrace")
    if isinstance(stack, str):  # zlib, in base64
        stack = json.loads(zlib.decompress(base64.b64decode(stack)))
    told = {
        "source_id": job["jid"],
        "error_class": job.get("error_class"),
        "message": job.get("error_message"),
        "stack": stack if isinstance(stack, list) else None,
        "attempts": job.get("retry_count", 0) + 1,
        "created_at": instant(job["created_at"]),
        "died_at": instant(job.get("retried_at", job["failed_at"])),
    }
    return line(job) | {
        name: value for name, value in told.items() if value is not None
    }


def waiting(job: dict[str, Any], due: float | None) -> dict[str, Any]:
    """Return a line for `redrive enqueue -`; its key prevents duplicates."""
    at = {} if due is None else {"run_at": datetime.fromtimestamp(due, UTC).isoformat()}
    return line(job) | {"idempotency_key": job["jid"], **at}


def members(lines: list[str]) -> Iterator[tuple[dict[str, Any], float | None]]:
    """Yield each job, with its due time if the dump has scores."""
    for n, text in enumerate(lines):
        if text.startswith("{"):
            score = lines[n + 1] if n + 1 < len(lines) else "{"
            yield json.loads(text), None if score.startswith("{") else float(score)


if __name__ == "__main__":
    for found, score in members(sys.stdin.read().splitlines()):
        print(
            json.dumps(dead(found) if sys.argv[1] == "dead" else waiting(found, score))
        )
