"""YAML of users, as files of cells and targets have it."""

import pytest

from redrive.rules.yaml_text import NotReadable, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{'<<': [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "it has more than 100000 values": BOMB,
    "it has more than 100000 values, merged": MERGED.replace("'<<'", "<<"),
    "it is nested too deeply": "[" * 50_000,
    "it has a number or a date that cannot be read": f"a: {'9' * 100_000}",
    "it has a number or a date that cannot be read, too": "a: 2026-13-45",
    "the key at line 3 is there twice": "a: 1\nb: 2\na: 3\n",
    "the key at line 2 is there twice": "x: {a: 1,\n  a: 2}\n",
    "an alias at line 1 contains itself": "&a [*a]",
    "it is not valid YAML at line 1": "!!python/object/apply:os.system ['true']",
    "it is not valid YAML": "a: \0",
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_file_is_refused_in_a_few_words(why: str):
    """Some took minutes, some were a traceback, and of a key the last one counted."""
    with pytest.raises(NotReadable) as refused:
        read_yaml(HOSTILE[why])

    assert str(refused.value) == why.partition(",")[0]


def test_aliases_and_merged_keys_are_taken():
    text = "base: &base {timeout: 3, limits: [a]}\nmail: {<<: *base, timeout: 5}\nsms: *base\n"

    read = read_yaml(text)

    assert read["mail"] == {"timeout": 5, "limits": ["a"]}
    assert read["sms"] == read["base"]
    assert read_yaml("") is None
