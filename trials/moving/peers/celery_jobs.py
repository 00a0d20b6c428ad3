"""Celery with a Redis: tasks that failed for good, and tasks that wait. argv: the Redis's URL."""

import sys

from celery import Celery
from celery.contrib.testing.worker import start_worker

app = Celery("shop", broker=sys.argv[1], backend=sys.argv[1])
app.conf.update(result_extended=True, broker_connection_retry_on_startup=True)


@app.task(name="Shop.charge")
def charge(invoice: int, *, currency: str = "EUR") -> None:
    """Fails by value."""
    if currency != "EUR":
        msg = f"no rate for {currency} of invoice {invoice}"
        raise ValueError(msg)
    raise TimeoutError


if __name__ == "__main__":
    with start_worker(app, perform_ping_check=False, shutdown_timeout=20):
        for result in [
            charge.delay(17, currency="XAU"),
            charge.apply_async(kwargs={"invoice": 18}),
        ]:
            result.get(timeout=20, propagate=False)
    charge.delay(19)
    charge.apply_async(kwargs={"invoice": 20}, countdown=3600)
