"""One view."""

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from orders.jobs import confirm
from orders.models import Order


@csrf_exempt  # an API, and nobody is signed in
@transaction.atomic
def place(request: HttpRequest) -> JsonResponse:
    """Place an order. Order and job are there once this has committed, or neither is."""
    order = Order(customer=request.POST["customer"])
    order.save()
    confirm.enqueue(connection, {"order": order.pk})
    order.full_clean()  # late on purpose: what it refuses takes the job along
    return JsonResponse({"id": order.pk}, status=201)


urlpatterns = [path("orders", place)]
