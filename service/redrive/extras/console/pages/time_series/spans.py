"""The span of a page: from its address, and into its links."""

from datetime import UTC, datetime

from redrive.extras.console.charts.span import DEFAULT, LENGTHS, Span, read
from redrive.extras.console.state import Visit
from redrive.rules.rows import Row
from redrive.verbs.query import Query
from redrive.verbs.refusal import Invalid

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
        raise Invalid(str(error)) from None


def without_span(query: Query) -> Query:
    """Return the parameters that are no span."""
    return [(name, text) for name, text in query if name not in NAMES]


def of_page(span: Span, default: str = DEFAULT, given: Query = ()) -> Row:
    """Return the values of the bar that chooses a span; `given` stays in its links."""
    return {
        "span": span,
        "lengths": list(LENGTHS),
        "default_span": default,
        "given": given,
        "in_span": span.given,
    }
