"""HTTP targets: jobs whose work is somebody's HTTP endpoint, in any language.

A file routes kinds to URLs; the runner sends the payload and reads the answer. 2xx completes the
job. 408, 425, 429, 5xx and connection errors are tried again, no sooner than Retry-After says;
other answers are final.

    allowed_hosts: [billing.internal]
    targets:
      invoice.charge: {url: "https://billing.internal/charge", timeout: 30}
      mail.*: {url: "https://billing.internal/mail", signing_key_file: /secrets/key}
"""

import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from redrive.errors import SettingsError
from redrive.handlers import Handler, Handlers
from redrive.job import Job
from redrive.observability.tracing import current_traceparent
from redrive.rules.categories import Rule
from redrive.rules.policy import Policy
from redrive.rules.redact import redact, scrub

KEPT_BODY = 2_048
"""Characters of an answer that are kept with a failure."""

READ_BODY = 65_536
"""Bytes of an answer that are read at all."""

PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
"""What a key may hold to go into a header as it is; the rest is percent-encoded."""

RETRIED = frozenset({400, 408, 422, 425, 429})
NOT_RETRYABLE = Rule(status=frozenset(range(300, 500)) - RETRIED, then="give_up")
"""400 and 422 are left to their category: the payload is invalid, and says so as the reason."""


class TargetError(Exception):
    """An endpoint did not answer with success; `response` has its status and headers."""

    def __init__(self, host: str, response: Any, body: str) -> None:
        super().__init__(f"{host} answered {response.status_code}" + (f": {body}" if body else ""))
        self.response = response


class Target(BaseModel):
    """Where a kind of job goes. Durations are in seconds; retries are set as in `Policy`."""

    model_config = ConfigDict(extra="forbid")

    url: str
    method: Literal["POST", "PUT"] = "POST"
    timeout: Annotated[float, Field(gt=0, le=86_400)] = 30
    headers: dict[str, str] = {}
    signing_key_file: Path | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    max_attempts: Annotated[int, Field(ge=1)] = 8
    backoff: Annotated[float, Field(ge=0)] = 2
    backoff_cap: Annotated[float, Field(ge=0)] = 3600
    depends_on: list[str] = []


class Targets(BaseModel):
    """What the file holds; `targets` are by kind, or by a prefix that ends in `*`."""

    model_config = ConfigDict(extra="forbid")

    allowed_hosts: list[str]
    targets: dict[str, Target]


def load(path: Path) -> Targets:
    """Read a file of targets.

    Raises:
        SettingsError: it cannot be read, a field is wrong, or a URL's host is not among
            `allowed_hosts`.
    """
    try:
        read = Targets.model_validate(_read_yaml(path))
    except ValidationError as error:
        raise _refused(path, _first_fault(error)) from None
    for kind, target in read.targets.items():
        if fault := _fault_of_url(target.url, read.allowed_hosts):
            raise _refused(path, f"targets.{kind}.url {fault}")
    return read


def _first_fault(error: ValidationError) -> str:
    """The first field that is wrong, and how, without its value."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the file"
    return f"{where}: {first['msg']}"


def _read_yaml(path: Path) -> Any:
    try:
        import yaml  # noqa: PLC0415 # an extra
    except ImportError as error:
        msg = "REDRIVE_TARGETS needs the http extra; install it with: pip install 'redrive[http]'"
        raise SettingsError(msg) from error
    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise _refused(path, f"it is not valid YAML{line}") from None


def _refused(path: Path, why: str) -> SettingsError:
    return SettingsError(f"REDRIVE_TARGETS is {path}; {why}")


def _fault_of_url(url: str, allowed_hosts: list[str]) -> str:
    """What is wrong with a target's URL, or nothing."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return "must start with http:// or https:// and name a host"
    if parts.username is not None or parts.password is not None:
        return "holds credentials; put them into a header or a signing key"
    if parts.hostname not in allowed_hosts:
        return f"goes to {parts.hostname}, which is not among allowed_hosts"
    return ""


def register(handlers: Handlers, read: Targets, slots: int) -> None:
    """Add a handler for each target; `slots` bounds the connections kept open.

    Raises:
        SettingsError: a kind has a handler already, or a key or certificate cannot be read.
    """
    for kind, target in read.targets.items():
        if handlers.get(kind) is not None:
            msg = f"REDRIVE_TARGETS names {kind}, which has a handler already"
            raise SettingsError(msg)
        handlers.add(
            Handler(
                kind=kind,
                function=_Caller(target, slots),
                policy=_policy(target),
                queue="default",
                depends_on=tuple(target.depends_on),
                is_async=True,
                takes_job=True,
                read=lambda text: text,
            )
        )


def _policy(target: Target) -> Policy:
    return Policy(
        max_attempts=target.max_attempts,
        timeout=target.timeout + 5,  # the client's own timeout comes first, and says what hung
        backoff=target.backoff,
        backoff_cap=max(target.backoff_cap, target.backoff),
        rules=(NOT_RETRYABLE,),
    )


def signature(key: bytes, at: int, body: bytes) -> str:
    """Return the Redrive-Signature header: Unix seconds, hex HMAC-SHA256 of `seconds.body`."""
    digest = hmac.new(key, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


class _Caller:
    """The function of a target's handler: one HTTP client, kept open between jobs."""

    def __init__(self, target: Target, slots: int) -> None:
        self._target = target
        self._slots = slots
        self._host = urlsplit(target.url).hostname or ""
        try:
            key_file = target.signing_key_file
            self._key = key_file.read_bytes().strip() if key_file else None
            self._tls = _tls(target)
        except (OSError, ssl.SSLError) as error:
            msg = (
                f"REDRIVE_TARGETS: a key or certificate of {target.url} cannot be read:"
                f" {error.strerror or error}"
            )
            raise SettingsError(msg) from None
        self._client: Any = None

    async def __call__(self, payload: str, job: Job) -> None:
        body = payload.encode()
        async with self._open().stream(
            self._target.method, self._target.url, content=body, headers=self._headers(job, body)
        ) as response:
            text = await _read_some(response)
            if not response.is_success:
                raise TargetError(self._host, response, text)

    def _open(self) -> Any:
        if self._client is None:
            import httpx  # noqa: PLC0415 # an extra

            self._client = httpx.AsyncClient(
                timeout=self._target.timeout,
                verify=self._tls,
                follow_redirects=False,  # a redirect could lead to a host that is not allowed
                limits=httpx.Limits(
                    max_connections=self._slots, max_keepalive_connections=self._slots
                ),
                trust_env=False,
            )
        return self._client

    def _headers(self, job: Job, body: bytes) -> Mapping[str, str]:
        sent = {
            "Content-Type": "application/json",
            "User-Agent": "redrive",
            "Idempotency-Key": quote(job.key, safe=PRINTABLE),
            "Redrive-Job-Id": str(job.id),
            "Redrive-Attempt": str(job.attempt),
            "Redrive-Kind": job.kind,
        }
        trace = current_traceparent() or job.headers.get("traceparent")
        if isinstance(trace, str):
            sent["traceparent"] = trace
        if self._key is not None:
            sent["Redrive-Signature"] = signature(self._key, int(time.time()), body)
        return sent | self._target.headers


async def _read_some(response: Any) -> str:
    """The beginning of an answer that is not a success, as text; the rest is not read."""
    found = b""
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) >= READ_BODY:
            break
    if response.is_success:
        return ""
    return _redacted(found[:READ_BODY].decode("utf-8", "replace"))[:KEPT_BODY].strip()


def _redacted(text: str) -> str:
    """JSON without the values of its secret keys; other text without what looks like one."""
    try:
        return json.dumps(redact(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return scrub(text)  # before it is cut: what is cut off cannot close what it opened


def _tls(target: Target) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(target.ca_file) if target.ca_file else None)
    if target.client_cert_file is not None:
        context.load_cert_chain(target.client_cert_file, target.client_key_file)
    return context
