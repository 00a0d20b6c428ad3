"""The source of a test that repeats an attempt: it fails until the cause is fixed."""

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pprint import pformat
from typing import Any

from redrive.extras.replay.bundle import Bundle
from redrive.extras.replay.places import place_of

WIDTH = 80

_TEST = '''\
"""Job {id} failed{where}. Written by redrive job replay.{needs}"""

{imports}


def {name}() -> None:
    past = Past(
{past}
    )
    payload = {payload}

    outcome = run(jobs, {kind!r}, payload, past=past{options})

    failure = f"{{outcome.error_class}}: {{outcome.message}}"
    assert outcome.outcome == "completed", failure
'''


def test_name(bundle: Bundle) -> str:
    """Return the name of the test's function."""
    words = re.sub(r"\W+", "_", bundle.kind)
    return f"test_job_{bundle.id}_{words}"


def test_source(bundle: Bundle, handlers: str, *, needs: Collection[str]) -> str:
    """Return the test of an attempt.

    Args:
        handlers: the registry, as `module:attribute`.
        needs: HOST:PORT of each database that the handler connects to.
    """
    fields = list(_past(bundle))
    return _TEST.format(
        id=bundle.id,
        where=_where(bundle),
        needs=f"\n\nIt connects to {', '.join(needs)}.\n" if needs else "",
        imports=_imports(handlers, has_time="time=" in fields[0]),
        name=test_name(bundle),
        past="\n".join(f"        {field}," for field in fields),
        payload=_literal(bundle.payload, 4),
        kind=bundle.kind,
        options="".join(_options(bundle)),
    )


def _where(bundle: Bundle) -> str:
    """Return the failure and its place, for a docstring.

    The message is left out, because it may quote the payload.
    """
    failure = bundle.failure
    if failure is None:
        return ""

    place = place_of({"detail": failure.detail})
    at = ""
    if place:
        at = f" in {place.module}.{place.function}, line {place.line}"

    text = f" with {failure.error_class}{at}"

    # The text must neither end the docstring nor escape a character of it.
    return text.replace("\\", "/").replace('"', "'")


def _imports(handlers: str, *, has_time: bool) -> str:
    module, _, attribute = handlers.partition(":")
    registry = attribute if attribute == "jobs" else f"{attribute} as jobs"

    lines = ["from datetime import UTC, datetime", ""] if has_time else []
    lines += ["from redrive.testing import Past, run", ""]

    return "\n".join((*lines, f"from {module} import {registry}"))


def _past(bundle: Bundle) -> Iterator[str]:
    """Yield the arguments of `Past`."""
    past = bundle.past()
    if past.time is not None:
        time = _instant(past.time)
        yield f"time={time}"

    yield f"seed={bundle.seed!r}"
    if past.attempt > 1:
        yield f"attempt={past.attempt}"
    if past.headers:
        yield f"headers={_literal(past.headers, 8)}"

    if past.checkpoint is not None:
        yield f"checkpoint={_literal(past.checkpoint, 8)}"


def _options(bundle: Bundle) -> Iterator[str]:
    """Yield the options of the job that its handler can read."""
    options = {
        "queue": bundle.queue,
        "tenant": bundle.tenant,
        "idempotency_key": bundle.idempotency_key,
        "ordering_key": bundle.ordering_key,
        "max_attempts": bundle.max_attempts,
    }

    for name, value in options.items():
        if value is not None:
            yield f", {name}={value!r}"


def _instant(time: datetime) -> str:
    """Return an instant as Python source that imports `datetime` and `UTC`."""
    text = repr(time.astimezone(UTC))
    text = text.replace("datetime.datetime", "datetime")

    return text.replace("datetime.timezone.utc", "UTC")


def _literal(value: Any, indent: int) -> str:
    """Return a JSON value as Python source, indented for its place."""
    text = pformat(value, width=WIDTH - indent, sort_dicts=False)
    margin = " " * (indent + 11)
    return text.replace("\n", f"\n{margin}")
