"""docs/python.md: all that users import is on it, as the code declares it."""

import redrive
import redrive.celery
import redrive.testing
from tools import python_page


def test_all_that_redrive_exports_is_on_the_page_what_one_begins_with_first():
    listed: dict[str, list[str]] = {}
    for module, names in python_page.PARTS.values():
        listed.setdefault(module.__name__, []).extend(names.split())

    assert {module: sorted(names) for module, names in listed.items()} == {
        module.__name__: sorted(module.__all__)
        for module in (redrive, redrive.testing, redrive.celery)
    }
    assert listed["redrive"][0] == "enqueue"


def test_a_signature_is_shown_without_self_and_with_each_kind_of_connection():
    page = python_page.page()

    assert (
        "def idempotent(conn: SyncConnection, key: str) -> bool\n"
        "def idempotent(conn: AsyncConnection, key: str) -> Awaitable[bool]\n"
    ) in page
    assert "#### Job.progress\n\n```python\ndef progress(share: float," in page
    assert "self" not in page
    assert "noqa" not in page


def test_a_docstring_becomes_paragraphs_examples_and_lists():
    (doc,) = (
        part
        for part in python_page.page().split("\n### ")
        if part.startswith("idempotent\n")
    )

    assert '\n```python\nwith conn.transaction():\n    if idempotent(conn, f"' in doc
    assert "\n**Arguments**\n\n- `conn`: a connection of psycopg" in doc
    assert "\n**Raises**\n\n- `InvalidJob`: the key is empty" in doc
