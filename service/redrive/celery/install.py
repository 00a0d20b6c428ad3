"""Receivers of Celery's signals: a task that has failed for good goes to the spool."""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from redrive.celery.database import connects_to
from redrive.celery.flush import Sender
from redrive.celery.receivers import Receivers
from redrive.celery.records import as_name
from redrive.celery.spool import Spool

DIRECTORY = "/var/tmp/redrive-celery-{user}-{app}"  # noqa: S108 # check() refuses another user's
LIMIT = 10_000

Receiver = Callable[..., None]

_signals: Any = import_module("celery.signals")


def install(
    app: Any,
    *,
    database_url: str | None = None,
    spool: str | Path | None = None,
    spool_limit: int = LIMIT,
    flush: bool = True,
) -> None:
    """Keep the tasks of a Celery app that fail for good as dead letters in Redrive.

    Call it once in the module of the app. The process that runs a task only writes a
    file. A thread of the worker's main process sends the files to Postgres.

    Args:
        app: the Celery app.
        database_url: a login that is a member of redrive_operator; by default
            REDRIVE_DATABASE_URL. It is read when the worker has something to send.
        spool: a directory on a disk that outlives the worker. It is created. By
            default, each user and each name of an app has one in /var/tmp. Apps with
            different databases must not share one.
        spool_limit: the number of records that the directory may hold. If it is full,
            further dead letters are only logged.
        flush: False: no thread; `python -m redrive.celery flush` sends the files.

    Raises:
        ValueError: the limit is not above 0.
    """
    if spool_limit < 1:
        msg = f"spool_limit is {spool_limit}; it must be 1 or more"
        raise ValueError(msg)

    directory = Spool(Path(spool or default_directory(app)), spool_limit)

    wanted = _about_ends(Receivers(app, directory))
    wanted["worker_init"] = lambda **_: directory.prepare()

    if flush:
        sender = Sender(directory, connects_to(database_url))
        wanted["worker_ready"] = lambda **_: sender.start()
        wanted["worker_shutdown"] = lambda **_: sender.stop()

    for name, receiver in wanted.items():
        signal = getattr(_signals, name)
        # By default, a signal does not keep its receivers alive.
        signal.connect(receiver, weak=False, dispatch_uid=f"redrive:{name}:{id(app)}")


def default_directory(app: Any) -> str:
    """Return the directory of an app's records, for this user."""
    return DIRECTORY.format(user=os.geteuid(), app=as_name(app.main or "celery")[:100])


def _about_ends(receivers: Receivers) -> dict[str, Receiver]:
    """Return the receiver of each signal that is about a task."""
    return {
        "task_failure": receivers.failed,
        "task_success": receivers.succeeded,
        "task_revoked": receivers.revoked,
        "task_unknown": receivers.unknown,
        "task_rejected": receivers.rejected,
        "task_received": receivers.received,
    }
