"""Handlers of all apps, in a Django that is set up, for a worker.

REDRIVE_HANDLERS=redrive.django.worker:jobs, as `manage.py redrive worker` has it by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.db import close_old_connections

from redrive.django.registry import collect, within


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Do for a job what Django does for a request: connections that are old or broken go.

    Not after it: a transaction that it left open, with its completion in it, has to be seen.
    """
    close_old_connections()
    yield


django.setup()
jobs = within(_fresh_connections, collect())
