"""The rules of one release: what the chart makes of each expression, in Python."""

import re

NAME = r"(redrive[_:][a-z0-9_:]+)"
"""In an expression every metric begins so, and nothing else does: the chart relies on it."""


def scoped(expression: str, scope: str) -> str:
    """Add matchers to every selector, those that have some first."""
    begun = re.sub(NAME + r"\{", rf"\1{{{scope},", expression)
    return re.sub(NAME + r"([^a-z0-9_:{]|$)", rf"\1{{{scope}}}\2", begun)
