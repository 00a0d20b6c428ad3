"""Redrive as an app of Django: put "redrive.django" into INSTALLED_APPS.

Jobs are enqueued on Django's own connection, so that a rollback takes them along:

    from redrive.django import jobs

    @jobs.handle("order.confirm")
    def confirm(payload: dict[str, Any]) -> None: ...

    with transaction.atomic():
        order = Order.objects.create(...)
        confirm.enqueue(connection, {"order": order.pk})
"""

from redrive.handlers import Handlers

jobs = Handlers()
"""The project's registry: each app's module `jobs` registers its handlers here."""
