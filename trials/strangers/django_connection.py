"""A connection of Django without a project."""

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def connection(url: str) -> Any:
    """Configure Django once, and return its connection to this database."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # the calls are made in a coroutine
    from django.conf import settings

    parts = conninfo_to_dict(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    import django
    from django.db import connection

    django.setup()
    return connection
