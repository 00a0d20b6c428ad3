"""What a worker of Celery writes to the spool when a task has ended."""

import logging
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, cast

from redrive.celery import records
from redrive.celery.arguments import OBJECT, Arguments, by_name
from redrive.celery.records import MARK, Record, Sent, sent_of
from redrive.celery.spool import Full, Spool
from redrive.errors import SettingsError
from redrive.rules.attempts.failure import made_up
from redrive.rules.model import Category, Failure

logger = logging.getLogger("redrive.celery")

JSON = "application/json"

_context: Any = import_module("celery.app.task").Context


def contained(receiver: Callable[..., None]) -> Callable[..., None]:
    """Log what a receiver raises. It must not harm the task."""

    @wraps(receiver)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            receiver(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 # as said above
            logger.error("a dead letter is lost: %s", type(error).__name__)  # noqa: TRY400 # a traceback may hold arguments

    return run


class Receivers:
    """Receivers of the signals of one app.

    A failure is reported by the process that ran the task. If that process was killed
    or ran out of time, the main process of the worker reports it.
    """

    def __init__(self, app: Any, spool: Spool) -> None:
        self._app = app
        self._spool = spool
        # Celery reports a task that ran out of time without its request.
        self._received = weakref.WeakValueDictionary[str, Any]()

    def received(self, request: Any, **_: Any) -> None:
        """Remember a request for as long as the worker has it."""
        self._received[request.id] = request

    def succeeded(self, sender: Any, **_: Any) -> None:
        """Report a success, if Redrive has sent the task. Most tasks end here."""
        request = sender.request
        mark = getattr(request, MARK, None)

        if mark is not None and sender.app is self._app:
            self._report(request.id, sent_of(mark), None)

    @contained
    def failed(  # the arguments of the signal
        self,
        sender: Any,
        task_id: str,
        exception: BaseException,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        **_: Any,
    ) -> None:
        """Report a failure. Celery retries the task no more."""
        request = self._request(sender, task_id)
        # An eager task raises its error to its caller. Signals come from all apps.
        if request.is_eager or sender.app is not self._app:
            return

        given = Arguments(args or (), kwargs or {})
        named = by_name(sender.run, given)
        failure = records.failure_of(_original(exception), sender.name, named)

        self._end(request, sender.name, failure, given)

    @contained
    def revoked(self, sender: Any, request: Any, expired: object, **_: Any) -> None:
        """Report a revoked task, if Redrive has sent it. Others are wanted so."""
        sent = sent_of(getattr(request, MARK, None))
        if sent is None or sender.app is not self._app:
            return

        message = "the task was revoked"
        if expired:
            message = "the task expired"

        kind = records.kind_of(sender.name)
        failure = made_up("TaskRevoked", message, Category.OTHER, kind)
        self._report(request.id, sent, failure)

    @contained
    def unknown(self, sender: Any, name: str, id: str, message: Any, **_: Any) -> None:  # noqa: A002 # as Celery has it
        """Report a task that this worker does not know. Celery drops its message."""
        if sender.app is not self._app:
            return

        text = f"no worker that received it has the task {name!r}"
        self._dropped(
            message,
            task_id=id,
            name=name,
            error_class="celery.NotRegistered",
            text=text,
        )

    @contained
    def rejected(self, sender: Any, message: Any, exc: Any, **_: Any) -> None:
        """Report a task whose message this worker does not accept. Celery drops it.

        A message without a task and an id is not reported.
        """
        headers: dict[str, Any] = message.headers or {}
        task = headers.get("task")
        task_id = headers.get("id")

        if sender.app is not self._app:
            return

        if task and task_id:
            text = f"the worker does not accept the message: {message.content_type}"
            self._dropped(message, task_id, task, f"celery.{type(exc).__name__}", text)

    def _dropped(
        self, message: Any, task_id: str, name: str, error_class: str, text: str
    ) -> None:
        """Report a task that did not begin, because Celery has dropped its message."""
        headers: dict[str, Any] = message.headers or {}
        where = message.delivery_info
        request = _context({**headers, "id": task_id}, delivery_info=where)

        failure = made_up(
            error_class, message=text, category=Category.BUG, kind=records.kind_of(name)
        )

        self._end(request, name, failure, _arguments(message))

    def _end(self, request: Any, name: str, failure: Failure, given: Arguments) -> None:
        """Report a task that failed for good, to its job or as a dead letter."""
        sent = sent_of(getattr(request, MARK, None))
        if sent is None:
            record = records.letter(request, name, failure, given)
        else:
            record = records.outcome(sent, failure)

        self._put(request.id, sent, record)

    def _request(self, task: Any, task_id: str) -> Any:
        """Return the Context of a task that ends."""
        current = task.request
        if current.id == task_id:
            return current

        known = self._received.get(task_id)
        if known is None:
            # This process does not have the request, so only the id is known.
            return _context(id=task_id)

        return _context(known.request_dict)

    @contained
    def _report(self, task_id: str, sent: Sent | None, failure: Failure | None) -> None:
        if sent is not None:
            self._put(task_id, sent, records.outcome(sent, failure))

    def _put(self, task_id: str, sent: Sent | None, record: Record) -> None:
        try:
            self._spool.put(records.name_of(task_id, sent), records.encode(record))
        except Full:
            logger.error(  # noqa: TRY400 # the text says it all
                "%s holds %d records and is full: the end of task %s is not kept",
                self._spool.directory,
                self._spool.limit,
                task_id,
            )
        except SettingsError as error:
            logger.error("%s: the end of task %s is not kept", error, task_id)  # noqa: TRY400 # as above
        except OSError as error:
            logger.error(  # noqa: TRY400 # as above
                "%s cannot be written: %s: the end of task %s is not kept",
                self._spool.directory,
                error.strerror,
                task_id,
            )


def _original(error: BaseException) -> BaseException:
    """Return the exception itself. Celery replaces one that cannot be pickled."""
    current = sys.exc_info()[1]
    if current is None or not hasattr(error, "exc_cls_name"):
        return error
    return current


def _arguments(message: Any) -> Arguments:
    """Return the arguments of a message, if reading them runs no code."""
    if message.content_type != JSON:
        described = {OBJECT: f"arguments as {message.content_type}, not read"}
        return Arguments([described], {})

    return _of_payload(message.payload)


def _of_payload(payload: Any) -> Arguments:
    """Return the arguments of a payload in either version of Celery's protocol."""
    if isinstance(payload, dict):  # the first version
        task = cast("dict[str, Any]", payload)
        return Arguments(task.get("args") or [], task.get("kwargs") or {})

    args, kwargs, _ = payload
    return Arguments(args, kwargs)
