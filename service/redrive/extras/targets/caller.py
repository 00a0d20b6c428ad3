"""Call of a target: one request per attempt, to a checked address, in limited time."""

import asyncio
import json
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlsplit

import httpcore2

from redrive.errors import InvalidJob, SettingsError
from redrive.extras.targets.addresses import Network, is_allowed
from redrive.extras.targets.file import Target, Targets, TargetSchedule, load
from redrive.extras.targets.signing import read_keys, signed
from redrive.handlers import Handler, Handlers
from redrive.handlers.job import Job
from redrive.observability.tracing import current_traceparent
from redrive.rules.attempts.categories import Rule
from redrive.rules.attempts.policy import Policy
from redrive.rules.concurrency import check_templates
from redrive.rules.heal import Heal
from redrive.rules.payloads.redact import redact, scrub, secrets_of_environment
from redrive.rules.slots import Schedule

KEPT_BODY = 2_048
"""Number of an answer's characters that are kept with a failure."""

READ_BODY = 65_536
"""Largest number of an answer's bytes to read."""

KEEP_ALIVE_SECONDS = 5.0

FIXED_HEADERS = {
    "content-type": "application/json",
    "user-agent": "redrive",
    "accept-encoding": "identity",
}

PRINTABLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
"""Characters of a key that a header takes unchanged; others are percent-encoded."""

RETRIED = frozenset({400, 408, 422, 425, 429})
NOT_RETRYABLE = Rule(status=frozenset(range(300, 500)) - RETRIED, then="give_up")
"""Final answers. 400 and 422 are left to their category, whose reason is clearer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an endpoint, for the failure's category; header names are lowercase."""

    status_code: int
    headers: Mapping[str, str]


class TargetError(Exception):
    """An endpoint answered with a failure; `response` has its status and headers."""

    def __init__(self, host: str, response: Answer, body: str) -> None:
        text = f"{host} answered {response.status_code}"
        super().__init__(f"{text}: {body}" if body else text)
        self.response = response


class AddressRefused(PermissionError):
    """A name resolved to an address that is not allowed."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(
            f"{host} leads inwards, to {address}; to allow this, add its network to"
            " allowed_networks in the file of REDRIVE_TARGETS"
        )


def add(handlers: Handlers, path: Path, slots: int) -> None:
    """Add a handler for each target of a file; see `load` and `register`."""
    register(handlers, load(path), slots)


def register(handlers: Handlers, read: Targets, slots: int) -> None:
    """Add a handler for each target.

    Args:
        slots: limit of the connections that are kept open.

    Raises:
        SettingsError: a kind already has a handler, or a key or certificate cannot be
            read.
    """
    for kind, target in read.targets.items():
        if handlers.get(kind) is not None:
            msg = f"REDRIVE_TARGETS names {kind}, which has a handler already"
            raise SettingsError(msg)

        caller = _Caller(target, read.allowed_networks, slots)
        handlers.add(_handler(kind, target, caller))

    # A schedule needs the handler of its kind, so the targets come first.
    for number, schedule in enumerate(read.schedules):
        try:
            _add_schedule(handlers, schedule)
        except (InvalidJob, ValueError) as error:
            msg = f"REDRIVE_TARGETS: schedules.{number}: {error}"
            raise SettingsError(msg) from None


def _handler(kind: str, target: Target, caller: "_Caller") -> Handler:
    heal = None
    if target.heal is not None:
        heal = Heal(**target.heal.model_dump())

    return Handler(
        kind=kind,
        function=caller,
        policy=_policy(target),
        queue="default",
        depends_on=tuple(target.depends_on),
        on_death=target.on_death,
        is_async=True,
        takes_job=True,
        read=lambda text: text,
        known=caller.known,
        limits=check_templates(target.limits),
        sample=target.sample,
        heal=heal,
        redrive_rate=target.redrive_rate,
        repeatable=target.repeatable,
    )


def _add_schedule(handlers: Handlers, wanted: TargetSchedule) -> None:
    schedule = Schedule(
        wanted.cron, wanted.tz, wanted.catch_up, wanted.payload, wanted.name
    )
    handlers.schedule(wanted.kind, schedule, queue=wanted.queue)


def _policy(target: Target) -> Policy:
    base = target.backoff
    cap = target.backoff_cap
    return Policy(
        max_attempts=target.max_attempts,
        window=target.window,
        timeout=target.timeout + 5,  # the client's own timeout is first and clearer
        backoff=base,
        backoff_cap=cap if cap is None else max(cap, base or 0.0),
        rules=(NOT_RETRYABLE,),
    )


class _Network(httpcore2.AsyncNetworkBackend):
    """A network backend that checks each address when it connects.

    An earlier check would not be safe, because a name may resolve differently later.
    """

    def __init__(self, named: Iterable[Network]) -> None:
        self._named = tuple(named)
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 # as in the base class
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first allowed address of a host that answers."""
        # If no address answers, the error of the last one is raised.
        *others, last = await self._addresses(host, port)
        share = timeout and timeout / (len(others) + 1)

        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await self._backend.connect_tcp(
                    address, port, share, local_address, socket_options
                )

        return await self._backend.connect_tcp(
            last, port, share, local_address, socket_options
        )

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the allowed addresses of a host, or raise AddressRefused."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        allowed: list[str] = []
        address = ""

        for *_, place in found:
            address = str(place[0])
            if is_allowed(address, self._named):
                allowed.append(address)

        if not allowed:
            raise AddressRefused(host, address)

        return allowed


class _Caller:
    """Function of a target's handler, with a pool of connections kept between jobs."""

    def __init__(self, target: Target, named: Iterable[Network], slots: int) -> None:
        self._target = target
        parts = urlsplit(target.url)
        self._host = parts.hostname or ""
        self._fixed = FIXED_HEADERS | {"host": parts.netloc}

        self._keys: Sequence[bytes] = ()
        if target.signing_key_file:
            self._keys = read_keys(target.signing_key_file)

        own = target.headers.items()
        self._own = {name.lower(): value for name, value in own}
        self.known = _secrets(self._own, self._keys)

        self._pool = _pool(target, (*named, *_literal(self._host)), slots)

    async def __call__(self, payload: str, job: Job) -> None:
        seconds = self._target.timeout
        try:
            # The pool's own timeout limits the connect alone.
            async with asyncio.timeout(seconds):
                await self._call(payload.encode(), job)
        except TimeoutError:
            msg = f"{self._host} had not answered after {seconds:g} s"
            raise TimeoutError(msg) from None

    async def _call(self, body: bytes, job: Job) -> None:
        async with self._pool.stream(
            self._target.method,
            self._target.url,
            headers=self._headers(job, body),
            content=body,
            extensions={"timeout": {"connect": self._target.timeout}},
        ) as response:
            read = await _read_some(response)

        if not 200 <= response.status < 300:  # noqa: PLR2004 # success in HTTP
            raise self._failure(response, read)

    def _failure(self, response: httpcore2.Response, read: bytes) -> TargetError:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        answer = Answer(response.status, headers)
        # The bytes of an encoded answer are no text: nothing decompresses them.
        is_readable = "content-encoding" not in headers
        text = _text(read, self.known) if is_readable else ""

        return TargetError(host=self._host, response=answer, body=text)

    def _headers(self, job: Job, body: bytes) -> list[tuple[bytes, bytes]]:
        key = quote(job.key, safe=PRINTABLE)
        sent = self._fixed | {
            "content-length": str(len(body)),
            "idempotency-key": key,
            "redrive-job-id": str(job.id),
            "redrive-attempt": str(job.attempt),
            "redrive-kind": job.kind,
        }
        if job.scheduled_for is not None:
            sent["redrive-scheduled-for"] = job.scheduled_for.isoformat()
        if trace := _traceparent(job):
            sent["traceparent"] = trace

        if self._keys:
            # A full stop would separate the signed parts.
            message = key.replace(".", "%2E")
            sent |= signed(self._keys, message, int(time.time()), body)

        # Headers of the file come last, so that they replace ours.
        sent |= self._own
        return [(name.encode(), value.encode()) for name, value in sent.items()]


def _traceparent(job: Job) -> str | None:
    """Return the trace to continue; None if a producer's header is not valid."""
    trace = current_traceparent() or job.headers.get("traceparent")
    if isinstance(trace, str) and trace.isascii() and trace.isprintable():
        return trace

    return None


def _pool(
    target: Target, networks: Iterable[Network], slots: int
) -> httpcore2.AsyncConnectionPool:
    """Return the connections to a target, which are opened on demand."""
    return httpcore2.AsyncConnectionPool(
        ssl_context=_tls(target),
        max_connections=slots,
        max_keepalive_connections=slots,
        keepalive_expiry=KEEP_ALIVE_SECONDS,
        network_backend=_Network(networks),
    )


def _literal(host: str) -> Sequence[Network]:
    """Return the network of a host that is an address; allowing the host allowed it."""
    try:
        return (ip_network(host),)
    except ValueError:
        return ()


async def _read_some(response: httpcore2.Response) -> bytes:
    """Return the beginning of an answer's raw bytes, without decompressing them.

    A decompressed answer might have any size.
    """
    found = bytearray()
    async for chunk in response.aiter_stream():
        found += chunk
        if len(found) >= READ_BODY:
            break

    return bytes(found[:READ_BODY])


def _secrets(headers: Mapping[str, str], keys: Iterable[bytes]) -> frozenset[str]:
    """Return the secrets sent to an endpoint: keys and secret headers."""
    # In `Bearer abc`, the second part is secret by itself, too.
    without_scheme = {name: text.split(" ")[-1] for name, text in headers.items()}
    secrets = set(secrets_of_environment(headers))
    secrets |= secrets_of_environment(without_scheme)

    # Without the padding, a search finds a key with and without padding.
    secrets |= {b64encode(key).decode().rstrip("=") for key in keys}

    return frozenset(secrets)


def _text(read: bytes, known: Collection[str]) -> str:
    """Return the part of an answer that a failure keeps."""
    text = read.decode("utf-8", "replace")
    return _redacted(text, known)[:KEPT_BODY].strip()


def _redacted(text: str, known: Collection[str]) -> str:
    """Return a text without secrets: JSON by its keys, other text by patterns."""
    try:
        return json.dumps(redact(json.loads(text), secrets=known), ensure_ascii=False)
    except (ValueError, RecursionError):
        return scrub(text, known)  # before it is cut, so that quotes are closed


def _tls(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        if target.client_cert_file is not None:
            context.load_cert_chain(target.client_cert_file, target.client_key_file)
    except (OSError, ssl.SSLError) as error:
        fault = f"a key or certificate of {target.url} cannot be read"
        msg = f"REDRIVE_TARGETS: {fault}: {error.strerror or error}"
        raise SettingsError(msg) from None

    return context
