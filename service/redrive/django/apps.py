"""The app: `manage.py migrate` migrates Redrive's schema, too."""

from typing import Any

import psycopg
from django.apps import AppConfig
from django.db.models.signals import pre_migrate

from redrive.database.schema.migrate import migrate
from redrive.django.database import alias, conninfo


class RedriveConfig(AppConfig):
    """Configuration of the app."""

    name = "redrive.django"
    label = "redrive"
    verbose_name = "Redrive"

    def ready(self) -> None:
        """Migrate before the project's migrations, because they may enqueue jobs."""
        pre_migrate.connect(_migrate, sender=self)


def _migrate(using: str, verbosity: int, **_: Any) -> None:
    """Run `redrive migrate` at each `manage.py migrate`; upgrades need nothing else."""
    # A project may migrate several databases. The jobs are in one of them.
    if using != alias():
        return

    with psycopg.connect(conninfo(), autocommit=True) as conn:
        report = migrate(conn)

    if verbosity and report.applied:
        print(f"Redrive: schema version {report.after}")  # noqa: T201 # as Django's migrate does

    if verbosity and report.without_roles:
        print(f"Redrive: without roles: {report.without_roles}")  # noqa: T201 # as above
