"""What `redrive.celery.install` costs a task that succeeds, in microseconds.

    python -m bench.celery_cost

Celery's own tracer runs a task that does nothing, as a worker calls it, with the
receivers and without. The rounds alternate, and the median of their differences in CPU
time counts.
The main process also remembers each request that it receives; that is a figure of its own.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, signals
from celery.app.trace import build_tracer

import redrive.celery

ROUNDS, TASKS = 40, 5_000
REQUEST = {"id": "17", "is_eager": False, "delivery_info": {"routing_key": "celery"}}


def main() -> None:
    """Print the cost of both processes."""
    app = Celery("bench", broker="memory://")

    @app.task(name="bench.nothing", ignore_result=True)
    def nothing() -> None:
        pass

    with tempfile.TemporaryDirectory() as spool:
        redrive.celery.install(app, spool=spool, flush=False)
        successes = _cost(signals.task_success, lambda: _seconds(app, nothing))
        messages = _cost(signals.task_received, _received)
    print(f"process of the task  {successes:6.2f} us for each success")
    print(f"main process         {messages:6.2f} us for each message")


def _cost(signal: Any, act: Callable[[], float]) -> float:
    """Return what the receivers of a signal cost for each task."""
    installed = list(signal.receivers)
    costs: list[float] = []
    for _ in range(ROUNDS):
        signal.receivers = []
        without = act()
        signal.receivers = installed
        costs.append((act() - without) * 1e6 / TASKS)
    return statistics.median(costs)


def _seconds(app: Celery, task: Any) -> float:
    """Return how long the tracer takes for all tasks."""
    trace = build_tracer(task.name, task, app.loader, "bench", app=app)
    return _timed(lambda: trace("17", (), {}, dict(REQUEST)))


def _received() -> float:
    requests = [_Request(str(n)) for n in range(TASKS)]
    send = signals.task_received.send
    return _timed(lambda: send(sender=None, request=requests.pop()))


def _timed(act: Callable[[], Any]) -> float:
    began = time.process_time()  # other programs must not count
    for _ in range(TASKS):
        act()
    return time.process_time() - began


class _Request:
    """A request of Celery's, as far as its id."""

    def __init__(self, request_id: str) -> None:
        self.id = request_id


if __name__ == "__main__":
    main()
