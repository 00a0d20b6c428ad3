"""An application with Celery, as its workers and Redrive's load it."""

import os
import signal
import time
from pathlib import Path

from celery import Celery, Task, signals
from celery.exceptions import Reject

import redrive.celery

HOME = Path(os.environ["SHOP_HOME"])
URL = os.environ["SHOP_DATABASE_URL"]

app = Celery("shop", broker=os.environ["SHOP_BROKER"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 5, "unacked_restore_limit": None},
    task_acks_late=True,
    task_reject_on_worker_lost=False,
    accept_content=["json", "pickle"],
    worker_lost_wait=1,  # so that tests need not wait for ten seconds
    worker_prefetch_multiplier=1,
)
redrive.celery.install(
    app, database_url=os.environ.get("SHOP_REDRIVE_URL", URL), spool=HOME / "spool"
)

jobs = redrive.celery.sender(
    app, database_url=URL, verdict_after=float(os.environ.get("SHOP_VERDICT", "600"))
)


@signals.worker_ready.connect
def tell_that_it_is_ready(**_: object) -> None:
    (HOME / "ready").mkdir(exist_ok=True)
    (HOME / "ready" / str(os.getpid())).touch()


def is_mended() -> bool:
    return (HOME / "mended").exists()


@app.task(name="Shop.charge")
def charge(invoice: int, *, currency: str = "EUR", token: str = "") -> None:
    """Fails by value, until somebody mends it."""
    with (HOME / "charged").open("a") as log:
        log.write(f"{invoice} {currency}\n")
    if currency != "EUR" and not is_mended():
        msg = f"no rate for {currency} with {token}"
        raise ValueError(msg)


@app.task(name="shop.sign_in", bind=True)
def sign_in(_self: Task, user: str, password: str) -> None:
    """Fail, and repeat the password."""
    msg = f"{user} may not sign in with {password}"
    raise PermissionError(msg)


@app.task(
    name="shop.mail",
    bind=True,
    autoretry_for=(OSError,),
    max_retries=2,
    retry_backoff=False,
    default_retry_delay=0,
)
def mail(self: Task, address: str) -> None:
    """Fails at each of its three tries, until somebody mends it."""
    with (HOME / "mailed").open("a") as log:
        log.write(f"{self.request.retries}\n")
    if not is_mended():
        msg = "the mail server is away"
        raise OSError(msg)


@app.task(name="shop.kill")
def kill() -> None:
    """Kill the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="shop.slow", time_limit=1)
def slow() -> None:
    """Run for longer than it may."""
    if not is_mended():
        time.sleep(60)


@app.task(name="shop.refuse")
def refuse() -> None:
    """Reject the message."""
    raise Reject("no", requeue=False)


class Money:
    """An object that JSON cannot hold."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __repr__(self) -> str:
        return f"Money({self.amount})"


@app.task(name="shop.refund", serializer="pickle")
def refund(invoice: int, money: Money) -> None:
    """Fail, with an argument that JSON cannot hold."""
    if not is_mended():
        raise LookupError(invoice)


@app.task(name="shop.work", bind=True, max_retries=1, reject_on_worker_lost=True)
def work(self: Task, n: int, *, fails: bool) -> None:
    """Do nothing, or fail at each of its two tries and write down that it did."""
    if not fails:
        return
    if self.request.retries < self.max_retries:
        raise self.retry(countdown=0)
    with (HOME / "exhausted").open("a") as ledger:
        ledger.write(f"{self.request.id}\n")
    msg = f"no luck with {n}"
    raise RuntimeError(msg)
