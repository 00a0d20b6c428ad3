"""An attempt of a bundle in this process: `python -c SCENE`, or called by its parent.

The process writes JSON lines to its channel. The first is the timeout of the handler,
once the application is imported. The second is the result.
"""

import asyncio
import os
import pdb  # noqa: T100 # the debugger that the user asks for
import socket
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from redrive.errors import RedriveError
from redrive.extras.replay import network
from redrive.extras.replay.bundle import Bundle
from redrive.extras.replay.calls import Address
from redrive.extras.replay.places import Verdict, compared
from redrive.extras.replay.regression import test_name, test_source
from redrive.handlers import Handlers, load
from redrive.rules.attempts.settlement import Complete, DeadLetter, Retry, Settlement
from redrive.signals import seconds
from redrive.testing.attempt import settle_attempt
from redrive.worker.protocol import Jobs
from redrive.worker.run.process import end_with_parent

SCENE = "import sys; from redrive.extras.replay.scene import main; sys.exit(main(sys.argv[1:]))"


class Request(msgspec.Struct, frozen=True):
    """What is to be run.

    Attributes:
        debug: stop in the debugger where the attempt failed.
        test: write a test of the attempt.
        is_harmless: the test may be run, to see that it fails. It repeats the effects.
        allowed: addresses by HOST:PORT that the handler may connect to.
    """

    handlers: str
    bundle: Bundle
    debug: bool = False
    test: bool = False
    is_harmless: bool = False
    allowed: dict[str, list[Address]] = {}


class Result(msgspec.Struct, frozen=True):
    """Ending of the attempt.

    Attributes:
        outcome: as in `redrive.testing.Outcome`.
        failure: its record, or None.
        verdict: how it compares with the failure on record; None without one of them.
        test: source of a test that fails now for the same reason, or None.
        lookups: HOST:PORT of each host name that was looked up in vain.
    """

    outcome: str
    failure: dict[str, Any] | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    test: str | None = None
    lookups: list[str] = []

    @property
    def is_same(self) -> bool:
        """Return True if it failed as the failure on record."""
        return self.verdict in {"same", "same_failure"}

    @property
    def has_moved(self) -> bool:
        """Return True if it failed in the same function, at another line."""
        return self.verdict == "moved"


@dataclass(slots=True)
class _Errors:
    """The exception that ended the attempt."""

    last: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        self.last = error


def main(arguments: list[str]) -> int:
    """Run with the arguments FD REQUEST_FD PARENT; write the result to the channel."""
    fd, request_fd, parent = map(int, arguments)
    end_with_parent(parent)

    with os.fdopen(request_fd, "rb") as file:
        request = msgspec.json.decode(file.read(), type=Request)

    if not request.debug:
        os.dup2(2, 1)  # our parent reads one pipe

    with socket.socket(fileno=fd) as channel:
        try:
            result = _perform_loaded(request, channel)
        except (RedriveError, LookupError) as error:
            sys.stderr.write(f"redrive: {_words(error)}\n")
            return 64

        sys.stdout.flush()  # before our parent has the result and ends us
        channel.sendall(msgspec.json.encode(result) + b"\n")

    # Threads of handlers that never end must not keep the process.
    os._exit(0)


def _perform_loaded(request: Request, channel: socket.socket) -> Result:
    """Load the application, write the handler's timeout, and run the attempt."""
    handlers = load(request.handlers, "--handlers")
    handler = handlers.known(request.bundle.kind)
    channel.sendall(b'{"seconds": %f}\n' % seconds(handler.policy.timeout))
    unknown = network.resolve_only(request.allowed)
    result = perform(request, handlers)

    return msgspec.structs.replace(result, lookups=[*unknown])


def _words(error: Exception) -> str:
    if isinstance(error, LookupError):
        return str(error.args[0])
    return str(error)


def perform(request: Request, handlers: Handlers) -> Result:
    """Run the attempt; then debug it, or write a test of it, if asked."""
    errors = _Errors()
    result = _attempt(request.bundle, handlers, errors)
    if request.debug and errors.last is not None:
        with request.bundle.past().restored():
            pdb.post_mortem(errors.last.__traceback__)

    if request.test and (result.is_same or result.has_moved):
        return msgspec.structs.replace(result, test=_test(request))

    return result


def _attempt(bundle: Bundle, handlers: Handlers, errors: _Errors) -> Result:
    past = bundle.past()
    batch = Jobs(0, [bundle.queue], [bundle.work()])

    with past.restored():
        settlement = asyncio.run(_settled(handlers, batch, past.seed, errors))

    return _result(bundle, settlement)


async def _settled(
    handlers: Handlers, batch: Jobs, seed: str | None, errors: _Errors
) -> Settlement:
    run = settle_attempt(handlers, batch, seed=seed, on_error=errors.keep)
    settlement, _ = await run
    return settlement


def _result(bundle: Bundle, settlement: Settlement) -> Result:
    outcome = str(settlement.outcome.event)
    if isinstance(settlement, Complete):
        return Result(outcome)
    if not isinstance(settlement, Retry | DeadLetter):
        return Result(outcome, reason=getattr(settlement, "why", None))

    failure = settlement.failure.record()
    before = bundle.failure

    return Result(
        outcome=outcome,
        failure=failure,
        verdict=before and compared(msgspec.to_builtins(before), failure),
        reason=str(getattr(settlement, "reason", "")),
    )


def _test(request: Request) -> str | None:
    """Return the source of a test; None if it does not fail."""
    source = test_source(request.bundle, request.handlers, needs=request.allowed)
    if not request.is_harmless or _fails(source, request.bundle):
        return source
    return None


def _fails(source: str, bundle: Bundle) -> bool:
    names: dict[str, Any] = {}
    exec(compile(source, "<test>", "exec"), names)  # noqa: S102 # we wrote it

    try:
        names[test_name(bundle)]()
    except AssertionError:
        return True

    return False
