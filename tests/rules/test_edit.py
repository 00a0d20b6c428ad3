"""Corrections of a payload: which patches there are, what they make of it, how they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.dead_letters.edit import patch as edit
from redrive.errors import InvalidJob

PRECISE = '{"a":0.1234567890123456789012345,"b":1.10,"n":118059162071741130342400000}'
SHOWN = {"card": "[redacted]", "lines": [{"x": 1}, {"x": 2}], "n": 1}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=8,
)
payloads = st.dictionaries(st.text(max_size=3), values, max_size=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "patch: is not valid JSON"),
        ("{}", 'patch: must be a list of operations, as [{"op": "replace"'),
        ("[]", "patch: must be a list of operations"),
        ("[1]", "patch[0]: must be an object with op and path"),
        (
            '[{"op": "set", "path": "/a"}]',
            "patch[0].op: must be one of add, remove, replace",
        ),
        (
            '[{"op": "append", "path": "/a", "value": "x"}]',
            "patch[0].op: must be one of",
        ),
        ('[{"op": ["add"], "path": "/a"}]', "patch[0].op: must be one of"),
        ('[{"op": "add", "path": "/a"}]', "patch[0]: add needs value"),
        ('[{"op": "remove"}]', "patch[0]: remove needs path"),
        ('[{"op": "move", "path": "/a"}]', "patch[0]: move needs from"),
        (
            '[{"op": "add", "path": "a", "value": 1}]',
            "patch[0].path: must be a JSON Pointer",
        ),
        (
            '[{"op": "add", "path": 3, "value": 1}]',
            "patch[0].path: must be a JSON Pointer",
        ),
        (
            '[{"op": "copy", "from": "~2", "path": "/a"}]',
            "patch[0].from: must be a JSON Pointer",
        ),
        ('[{"op": "add", "path": "/a", "value": NaN}]', "patch: is not valid JSON"),
        (
            '[{"op": "add", "path": "/a", "value": "\udc80"}]',
            "patch: is not valid JSON",
        ),
        ("[" * 5000, "patch: is not valid JSON"),
        ('["' + "x" * 300_000 + '"]', "patch: at most 262144 bytes"),
    ],
)
def test_a_bad_patch_is_refused_by_name(text: str, said: str):
    with pytest.raises(InvalidJob) as caught:
        edit.read_patch(text)

    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("patch", "made"),
    [
        (
            '[{"op": "replace", "path": "/b", "value": 2.50}]',
            PRECISE.replace("1.10", "2.50"),
        ),
        ('[{"op": "test", "path": "/b", "value": 1.1}]', PRECISE),
        ('[{"op": "copy", "from": "/b", "path": "/c"}]', PRECISE[:-1] + ',"c":1.10}'),
    ],
)
def test_what_an_edit_does_not_name_keeps_every_digit(patch: str, made: str):
    assert edit.encode(edit.apply(edit.read_patch(patch), edit.decode(PRECISE))) == made


@pytest.mark.parametrize(
    "operation",
    [
        '{"op": "replace", "path": "/none", "value": "Zx9-canary"}',
        '{"op": "remove", "path": "/l/7"}',
        '{"op": "add", "path": "/s/x", "value": 1}',
        '{"op": "add", "path": "/l/x", "value": 1}',
        '{"op": "move", "from": "/none", "path": "/s"}',
        '{"op": "move", "from": "/l", "path": "/l/0"}',
        '{"op": "test", "path": "/s", "value": "Zx9-canary"}',
        '{"op": "test", "path": "/l/0", "value": true}',
        '{"op": "remove", "path": ""}',
    ],
)
def test_where_an_operation_does_not_apply_it_is_named_without_its_value(
    operation: str,
):
    payload = {"s": "other", "l": [1]}
    patch = edit.read_patch(
        f'[{{"op": "add", "path": "/new", "value": 1}}, {operation}]'
    )
    with pytest.raises(edit.NotApplicable) as caught:
        edit.apply(patch, payload)

    assert str(caught.value).startswith("operation 1 of the patch does not apply: ")
    assert "canary" not in str(caught.value)
    assert "other" not in str(caught.value)
    assert payload == {"s": "other", "l": [1]}, (
        "a patch applies as a whole or not at all"
    )


def test_a_patch_makes_the_same_of_each_payload():
    """What one operation adds another changes: that is not the patch itself."""
    patch = edit.read_patch(
        '[{"op": "add", "path": "/x", "value": {}}, {"op": "add", "path": "/x/n", "value": 1}]'
    )
    before = edit.encoded(patch)

    assert edit.apply(patch, {}) == edit.apply(patch, {}) == {"x": {"n": 1}}
    assert edit.encoded(patch) == before


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (
            '[{"op": "replace", "path": "", "value": [1]}]',
            "payload: must be an object, not list",
        ),
        (
            '[{"op": "add", "path": "/a", "value": 1e400}]',
            "payload: number outside the range",
        ),
        (
            '[{"op": "add", "path": "/a", "value": "\\u0000"}]',
            "payload.a: contains the character",
        ),
        (
            '[{"op": "add", "path": "/a", "value": ' + "[" * 70 + "]" * 70 + "}]",
            "payload: nested deeper than 64 levels",
        ),
    ],
)
def test_what_no_job_can_hold_is_refused(patch: str, said: str):
    with pytest.raises(InvalidJob) as caught:
        edit.encode(edit.apply(edit.read_patch(patch), {"n": 1}))

    assert str(caught.value).startswith(said)


def test_a_payload_copied_into_itself_again_and_again_is_stopped():
    patch = edit.read_patch(
        "[" + ",".join(['{"op": "copy", "from": "", "path": "/c/-"}'] * 60) + "]"
    )
    with pytest.raises(InvalidJob, match="payload: more than 262144 bytes"):
        edit.apply(patch, {"c": ["x" * 1000]})


@given(payloads, payloads)
def test_what_is_typed_is_what_becomes_of_it(before: dict, after: dict):
    shown, typed = edit.decode(edit.indented(before)), edit.decode(edit.indented(after))
    patch = edit.difference(shown, typed)

    assert edit.is_same(edit.apply(patch, before), after)
    assert (not patch) == edit.is_same(before, after)


def test_a_secret_that_was_not_shown_stays_what_it_is():
    typed = {"card": "[redacted]", "lines": [{"x": 2}], "n": True}
    patch = edit.difference(SHOWN, typed)
    made = edit.apply(patch, SHOWN | {"card": "4111"})

    assert made == typed | {"card": "4111"}
    assert made["n"] is True, "1 and true are two values"


@pytest.mark.parametrize(
    ("typed", "where"),
    [
        (SHOWN | {"note": "card [redacted]"}, "payload.note"),
        (SHOWN | {"lines": ["[redacted]"]}, "payload.lines.0"),
        ({"all": {"n": 1, "again": "[redacted]"}}, "payload.all"),
    ],
)
def test_what_stands_in_the_place_of_a_secret_is_never_written(typed: dict, where: str):
    with pytest.raises(
        InvalidJob, match=f"{where}.*: \\[redacted\\] stands for a value"
    ):
        edit.difference(SHOWN, typed)


def test_paths_say_what_changed_without_values():
    patch = edit.read_patch(
        '[{"op": "test", "path": "/t", "value": 1}, {"op": "replace", "path": "/a", "value": 1},'
        ' {"op": "move", "from": "/b", "path": "/c"}, {"op": "add", "path": "/a", "value": 2},'
        ' {"op": "replace", "path": "", "value": {}}]'
    )

    assert edit.paths(patch) == ["/a", "/b", "/c", "/"]
    assert edit.without_values(patch)[1:3] == [
        {"op": "replace", "path": "/a"},
        {"op": "move", "from": "/b", "path": "/c"},
    ]


def test_paths_are_bounded():
    many = [{"op": "add", "path": f"/{n}", "value": 1} for n in range(250)]

    assert len(edit.paths(many)) == 101
    assert edit.paths(many)[-1] == "and 150 more"


def test_a_diff_is_unified():
    assert edit.diff({"a": 1, "b": 2}, {"a": 1, "b": 3}, "job 7") == [
        "--- job 7",
        "+++ job 7, edited",
        "@@ -1,4 +1,4 @@",
        " {",
        '   "a": 1,',
        '-  "b": 2',
        '+  "b": 3',
        " }",
    ]


@pytest.mark.parametrize("depth", [900, 950])
def test_a_patch_that_nests_a_payload_deeper_than_python_recurses_is_refused(
    depth: int,
) -> None:
    value = "[" * depth + "]" * depth
    # Which of the two refuses it depends on how deep the caller is already.
    with pytest.raises(InvalidJob, match="nested deeper than 64 levels"):
        edit.apply(
            edit.read_patch(f'[{{"op": "add", "path": "/a", "value": {value}}}]'), {}
        )
