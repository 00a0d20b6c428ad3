"""Escaping of foreign text that is invisible or changes the direction.

A terminal obeys control characters. Characters that are invisible or change the
direction deceive readers (CVE-2021-42574). Every output goes through here: tables,
JSON, logs, reports.
"""

import re

_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_SURROGATES = r"\ud800-\udfff"
_FORMAT = (  # Unicode's category Cf, line and paragraph separators
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_NOT_SEEN = (  # other Default_Ignorable_Code_Points
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    r"\U000e0000-\U000e0fff"
)
_SPELLED_OUT = re.compile(f"[{_CONTROLS}{_SURROGATES}{_FORMAT}{_NOT_SEEN}]")

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
LAST_SHORT = 0xFFFF


def escaped(text: str) -> str:
    r"""Return the text with escapes such as `\n` or `\u202e`, also valid in JSON."""
    return _SPELLED_OUT.sub(lambda found: spelled_out(found[0]), text)


def spelled_out(character: str) -> str:
    r"""Return the escape of a character, such as `\n` or `\u202e`."""
    if character in _SHORT:
        return _SHORT[character]

    code = ord(character)
    if code <= LAST_SHORT:
        return f"\\u{code:04x}"

    high, low = divmod(code - 0x10000, 0x400)  # JSON needs a surrogate pair
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def escaped_lines(text: str) -> str:
    """Escape each line of a text as `escaped` does."""
    return "\n".join(map(escaped, text.split("\n")))
