"""Background jobs: python manage.py redrive worker."""

from django.core.mail import send_mail
from django.db import connection, transaction

from orders.models import Order
from redrive import Job
from redrive.django import jobs


@jobs.handle("order.confirm", queue="mail")
def confirm(payload: dict[str, int], job: Job) -> None:
    """Tell the customer. That it was done and the end of the job commit together."""
    with transaction.atomic():
        order = Order.objects.select_for_update().get(pk=payload["order"])
        send_mail("Your order", f"We have {order}.", None, [order.customer])
        order.confirmed = True
        order.save()
        job.complete(connection)
