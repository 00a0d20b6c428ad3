"""The JSON API matches its description: schemathesis makes up requests."""

import json
import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from redrive.extras.console.actions.changes import CHANGES
from tests.console.conftest import Site
from tests.factories import make_dead_letter, make_job

DRAWN = int(os.environ.get("REDRIVE_API_FUZZ", "8"))
"""Of each call; `make api-fuzz` draws 500."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_each_call_has_a_name_and_says_what_its_errors_are(site: Site):
    described = site.bearer("vera").get("/api/v1/openapi.json").json()
    calls = [call for path in described["paths"].values() for call in path.values()]

    assert len({call["operationId"] for call in calls}) == len(calls)
    assert {"list_jobs", "show_dead_letter", *CHANGES} <= {
        call["operationId"] for call in calls
    }
    for call in calls:
        assert set(call["responses"]) == {"200", "default"}
        assert call["security"] == [{"HTTPBearer": []}]


@pytest.mark.long
def test_no_call_breaks_it(site: Site):
    for n in range(3):
        make_job(site.database.conn, queue="mail", idempotency_key=f"k{n}")
        make_dead_letter(site.database.conn, kind="mail.send")
    site.app._window._most = 10**9
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", site.app)
    known = {"Authorization": "Bearer anna-token"}
    asked: dict[str, set[int]] = {}

    for found in schema.get_all_operations():
        operation: Any = found.ok()
        asked[operation.label] = statuses(operation, known)

    print(json.dumps({label: sorted(codes) for label, codes in asked.items()}))
    assert all(
        200 in codes for label, codes in asked.items() if label.endswith("queues")
    )
    assert len(asked) > len(CHANGES)


def statuses(operation: Any, headers: dict[str, str]) -> set[int]:
    """Return the statuses of made-up calls; fail if a response is not described."""
    found: set[int] = set()

    @seed(1)
    @settings(
        max_examples=DRAWN,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call(headers=headers)
        found.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    ask()
    return found
