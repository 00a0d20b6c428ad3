"""Handlers that raise with a credential in it, as clients and servers do. Payloads name it only."""

import base64
import json
from typing import Any

from redrive import GiveUp, Handlers, Job, Policy
from tests.rules.test_providers import SAMPLES

jobs = Handlers()
ONCE = Policy(max_attempts=1)
LONGEST = 200
"""Most characters of a side effect."""


def _told(how: str, secret: str) -> str:
    body = json.dumps({"error": {"api_key": secret, "code": 401}})
    basic = base64.b64encode(f"robot:{secret}".encode()).decode()
    return {
        "sentence": f"the API refused {secret} because it is revoked",
        "call": f"Unauthorized('{secret}')",
        "userinfo": f"cannot reach https://robot:{secret}@h.example/v1",
        "query": f"GET https://h.example/v1?page=2&access_token={secret} gave 401",
        "header": f"request {{'Authorization': 'Bearer {secret}', 'Accept': '*/*'}}",
        "raw header": f"POST /v1 HTTP/1.1\r\nHost: h\r\nX-Api-Key: {secret}\r\n\r\n",
        "cookie": f"Set-Cookie: session={secret}; Path=/; HttpOnly",
        "json": body,
        "json in json": json.dumps({"status": 401, "body": body}),
        "json in json in json": json.dumps({"log": json.dumps({"body": body})}),
        "base64": f"Authorization: Basic {basic}",
        "shell": f"exit status 22: curl -u robot:{secret} https://h.example",
        "environment": f"API_TOKEN={secret} ./deploy",
    }[how]


HOWS = (
    *("sentence", "call", "userinfo", "query", "header", "raw header", "cookie"),
    *("json", "json in json", "json in json in json", "base64", "shell"),
    "environment",
)
BARE = ("sentence", "call")
"""Only the form of the credential gives it away there."""


@jobs.handle("leak.raise", policy=ONCE)
def leak(payload: dict[str, Any], job: Job) -> None:
    """Raise from a cause that says it, too, with a note."""
    text = _told(payload["how"], SAMPLES[payload["name"]])
    if len(text) <= LONGEST:
        job.side_effect(text)
    try:
        raise ConnectionError(text)
    except ConnectionError as error:
        error.add_note(text)
        if payload["how"] in {"json", "call"}:
            raise GiveUp(text) from error
        raise ValueError(text) from error
