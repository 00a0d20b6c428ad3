"""What one producer's login can do to hurt the others; runs until its standard input ends.

python -m trials.attack.flood URL names | jobs | sizes | notify
"""

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable

import psycopg

Connection = psycopg.Connection[tuple[object, ...]]
JOBS = "insert into redrive.jobs (kind, queue) select 'flood', %s from generate_series(1, %s)"


def names(conn: Connection, n: int) -> None:
    """Thousands of new queues at once."""
    with (
        conn.cursor() as cursor,
        cursor.copy("copy redrive.jobs (kind, queue) from stdin") as copy,
    ):
        for queue in range(5_000):
            copy.write_row(("flood", f"n{n}-{queue}"))


def jobs(conn: Connection, n: int) -> None:
    """More and more jobs that no worker has a handler for, in as many queues as there may be."""
    conn.execute(JOBS, (f"q{n % 900}", 200 if n < 900 else 20))


def sizes(conn: Connection, n: int) -> None:
    """Payloads far past their limit."""
    conn.execute(
        "select redrive.enqueue('flood', jsonb_build_object('x', %s::text))", (BIG,)
    )


def notify(conn: Connection, n: int) -> None:
    """Wake everybody, for nothing."""
    conn.execute("notify redrive, '65535'")


BIG = "x" * (16 << 20)
WAYS: dict[str, Callable[[Connection, int], None]] = {
    way.__name__: way for way in (names, jobs, sizes, notify)
}


def main(url: str, *ways: str) -> None:
    """Do it as often as it goes."""
    threading.Thread(target=_flood, args=(url, ways), daemon=True).start()
    sys.stdin.read()


def _flood(url: str, ways: tuple[str, ...]) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("set role redrive_producer")
        for n in itertools.count():
            for way in ways:
                with contextlib.suppress(psycopg.Error):
                    WAYS[way](conn, n)
            if n == 0:
                sys.stdout.write("flooding\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
