"""MagicStack/asyncpg #623, for the adapters of psycopg.

A program stores lists as JSON on its connections. Redrive's arrays stay arrays.
"""

import json
from typing import Any

import psycopg
from psycopg.adapt import Dumper

from redrive import enqueue
from tests.postgres import Database


class AsJson(Dumper):
    oid = psycopg.postgres.types["jsonb"].oid

    def dump(self, obj: Any) -> bytes:
        return json.dumps(obj).encode()


def test_names_of_fields_are_an_array_whatever_lists_are(database: Database) -> None:
    names = ["ü", 'a"b', "c\\d", "e,{f}", " "]
    payload: dict[str, Any] = dict.fromkeys(names, 1)
    with psycopg.connect(database.url) as conn:
        conn.adapters.register_dumper(list, AsJson)
        first = enqueue(conn, "a.b", payload, unique_for=60, unique_by=names)
        again = enqueue(
            conn, "a.b", payload | {"other": 2}, unique_for=60, unique_by=names
        )
    assert first == again
