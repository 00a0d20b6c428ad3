"""Redrive as an app of Django: add "redrive.django" to INSTALLED_APPS.

Jobs are enqueued on Django's own connection, so a rollback removes them as well:

    from redrive.django import jobs

    @jobs.handle("order.confirm")
    def confirm(payload: dict[str, Any]) -> None: ...

    with transaction.atomic():
        order = Order.objects.create(...)
        confirm.enqueue(connection, {"order": order.pk})
"""

from redrive.handlers import Handlers

jobs = Handlers()
"""The project's registry. The module `jobs` of each app registers its handlers here."""
