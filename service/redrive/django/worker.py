"""Handlers of all apps in a configured Django, for a worker.

Set REDRIVE_HANDLERS=redrive.django.worker:jobs. `manage.py redrive worker` sets it
itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.db import close_old_connections

from redrive.django.registry import collect, within


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Close old or broken connections before a job, as Django does before a request.

    Connections stay open after the job. Redrive must see a transaction that the job
    left open with its completion.
    """
    close_old_connections()
    yield


django.setup()
jobs = within(_fresh_connections, collect())
