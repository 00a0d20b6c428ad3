"""An attempt of a bundle in this process: `python -c SCENE`, or called by its parent.

The process writes JSON lines to its channel. The first is the timeout of the handler,
once the application is imported. The second is the result.
"""

import asyncio
import os
import pdb  # noqa: T100 # the debugger that the user asks for
import random
import socket
import sys
import time
from collections.abc import Iterator
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

SEARCH_SECONDS, MOST_SEEDS = 10.0, 500
"""Limits of the search for a seed of the module `random`."""


class Request(msgspec.Struct, frozen=True):
    """What is to be run.

    Attributes:
        search: try further seeds if the handler uses the module `random`. This is for
            the sandbox, because each try would repeat the effects.
        debug: stop in the debugger where the attempt failed.
        test: write a test of the attempt, and see that it fails.
        allowed: addresses by HOST:PORT that the handler may connect to.
    """

    handlers: str
    bundle: Bundle
    search: bool = False
    debug: bool = False
    test: bool = False
    allowed: dict[str, list[Address]] = {}


class Result(msgspec.Struct, frozen=True):
    """Ending of the attempt.

    Attributes:
        outcome: as in `redrive.testing.Outcome`.
        failure: its record, or None.
        verdict: how it compares with the failure on record; None without one of them.
        seed: the seed of this end.
        test: source of a test that fails now for the same reason, or None.
        caller: last frame of the application that opened a connection in Python.
        lookups: HOST:PORT of each host name that was looked up.
    """

    outcome: str
    seed: str
    failure: dict[str, Any] | None = None
    verdict: Verdict | None = None
    reason: str | None = None
    test: str | None = None
    caller: str | None = None
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
    """The exception that ended the last attempt, and if its handler used `random`."""

    last: BaseException | None = None
    drew: bool = False

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
    with network.watched(request.allowed) as seen:
        result = perform(request, handlers)

    return msgspec.structs.replace(result, caller=seen.caller, lookups=seen.lookups)


def _words(error: Exception) -> str:
    if isinstance(error, LookupError):
        return str(error.args[0])
    return str(error)


def perform(request: Request, handlers: Handlers) -> Result:
    """Run the attempt; then debug it, or write a test of it, if asked."""
    errors = _Errors()
    result = _run(request, handlers, errors)
    if request.debug and errors.last is not None:
        past = request.bundle.past(result.seed)
        with past.restored():
            pdb.post_mortem(errors.last.__traceback__)

    if request.test and (result.is_same or result.has_moved):
        return msgspec.structs.replace(result, test=_test(request, result.seed))

    return result


def _run(request: Request, handlers: Handlers, errors: _Errors) -> Result:
    """Run the attempt; if asked, with other seeds until it fails as it did."""
    bundle = request.bundle
    first = _attempt(bundle, handlers, bundle.seed, errors)
    # Another seed changes nothing for a handler that draws no numbers.
    if not (request.search and errors.drew) or first.is_same:
        return first

    best = first
    for seed in _seeds(bundle.seed):
        found = _attempt(bundle, handlers, seed, errors)
        if found.is_same:
            return found
        if found.has_moved and not best.has_moved:
            best = found

    # The best attempt again, because `errors` must belong to the returned result.
    return _attempt(bundle, handlers, best.seed, errors)


def _seeds(seed: str) -> Iterator[str]:
    until = time.monotonic() + SEARCH_SECONDS
    for n in range(1, MOST_SEEDS):
        if time.monotonic() > until:
            return
        yield f"{seed}/{n}"


def _attempt(bundle: Bundle, handlers: Handlers, seed: str, errors: _Errors) -> Result:
    errors.last = None
    past = bundle.past(seed)
    batch = Jobs(0, [bundle.queue], [bundle.work()])

    with past.restored():
        untouched = _states_of_ours()
        settlement = asyncio.run(_settled(handlers, batch, past.seed_of_job, errors))
        errors.drew = random.getstate() not in untouched

    return _result(bundle, settlement, seed)


def _states_of_ours() -> list[object]:
    """Return the state of `random` now, and after the one number that we draw ourselves.

    A failed attempt draws one, for the wait until a retry.
    """
    copy = random.Random()
    copy.setstate(random.getstate())
    copy.random()

    return [random.getstate(), copy.getstate()]


async def _settled(
    handlers: Handlers, batch: Jobs, seed: str | None, errors: _Errors
) -> Settlement:
    run = settle_attempt(handlers, batch, seed=seed, on_error=errors.keep)
    settlement, _ = await run
    return settlement


def _result(bundle: Bundle, settlement: Settlement, seed: str) -> Result:
    outcome = str(settlement.outcome.event)
    if isinstance(settlement, Complete):
        return Result(outcome, seed)
    if not isinstance(settlement, Retry | DeadLetter):
        return Result(outcome, seed, reason=getattr(settlement, "why", None))

    failure = settlement.failure.record()
    before = bundle.failure
    verdict = before and compared(msgspec.to_builtins(before), failure)

    return Result(
        outcome=outcome,
        seed=seed,
        failure=failure,
        verdict=verdict,
        reason=str(getattr(settlement, "reason", "")),
    )


def _test(request: Request, seed: str) -> str | None:
    """Return the source of a test; None if it does not fail."""
    source = test_source(request.bundle, request.handlers, seed, needs=request.allowed)
    # Outside of the sandbox, the test would repeat the effects.
    if not request.search or _fails(source, request.bundle):
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
