"""A script that enqueues, and the handlers of its jobs, in one file; cron may run both lines.

    python newsletter.py 2026-11 subscribers.txt
    redrive worker --handlers newsletter:jobs --until-empty

The database is REDRIVE_DATABASE_URL.
"""

import os
import sys
from pathlib import Path

import psycopg

from redrive import Handlers, enqueue_many

jobs = Handlers()


@jobs.handle("newsletter.send")
def send(payload: dict[str, str]) -> None:
    """Mail one issue to one subscriber."""
    print(f"mail to {payload['to']}: the newsletter of {payload['issue']}")


def main() -> None:
    """Enqueue a mail for each subscriber: for all of them or, where one line is bad, for none.

    Each has a key, so that the script can run again: whoever has this issue gets no second one.
    """
    issue, subscribers = sys.argv[1], Path(sys.argv[2]).read_text().split()
    mails = (
        {
            "kind": "newsletter.send",
            "payload": {"issue": issue, "to": subscriber},
            "idempotency_key": f"{issue}/{subscriber}",
        }
        for subscriber in subscribers
    )
    with psycopg.connect(os.environ["REDRIVE_DATABASE_URL"]) as conn:
        print(enqueue_many(conn, mails), "enqueued")


if __name__ == "__main__":
    main()
