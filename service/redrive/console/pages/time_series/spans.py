"""The span of a page: from its address, and into its links."""

from datetime import UTC, datetime

from redrive.console.charts.span import DEFAULT, LENGTHS, Span, read
from redrive.console.query import Query, command
from redrive.console.security.access import Refused
from redrive.console.state import Visit
from redrive.rules.rows import Row

NAMES = ("from", "to")
"""Parameters of an address that are the span."""


def span_of(visit: Visit, default: str = DEFAULT) -> Span:
    """Return the span that the address of a page names.

    Raises:
        Refused: a text is not a time, or the span is empty.
    """
    given = {name: text for name, text in visit.query if name in NAMES}
    try:
        return read(given, datetime.now(UTC), default)
    except (ValueError, OverflowError) as error:
        raise Refused(400, str(error)) from None


def without_span(query: Query) -> Query:
    """Return the parameters that are no span."""
    return [(name, text) for name, text in query if name not in NAMES]


def shell_of(span: Span, default: str = DEFAULT, **of: str) -> str:
    """Return the shell command that shows the same counts and changes."""
    since = span.given.get("from", default)
    return command(("series", "--marks"), None, since=since, **of)


def of_page(span: Span, default: str = DEFAULT, given: Query = ()) -> Row:
    """Return the values of the bar that chooses a span; `given` stays in its links."""
    return {
        "span": span,
        "lengths": list(LENGTHS),
        "default_span": default,
        "given": given,
        "in_span": span.given,
    }
