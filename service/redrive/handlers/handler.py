"""A handler: the function for a kind of job, and its options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from redrive.rules.attempts.policy import OnDeath, Policy
from redrive.rules.heal import Heal
from redrive.signals import seconds

decode_object = msgspec.json.Decoder(dict[str, Any]).decode
encode_json = msgspec.json.Encoder().encode
Approval = Literal["two"]
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function and its options.

    `read` converts the payload's JSON to the function's argument. `known` has the
    handler's own secrets, such as an endpoint's keys, which must not appear in any
    text. `keep_result` and `timeout`, that of the policy, are in seconds.
    """

    kind: str
    function: Callable[..., Any]
    policy: Policy
    queue: str
    depends_on: tuple[str, ...]
    is_async: bool
    takes_job: bool
    read: Callable[[str], Any] = field(repr=False)
    secret: frozenset[str] = frozenset()
    version: int = 1
    upgrade: Mapping[int, Upgrade] = field(default_factory=dict[int, Upgrade])
    on_expired: Callable[..., Any] | None = None
    on_cancelled: Callable[..., Any] | None = None
    on_death: OnDeath = "continue"
    known: frozenset[str] = field(default=frozenset(), repr=False)
    limits: tuple[str, ...] = ()
    keep_result: float = 0.0
    approval: Approval | None = None
    sample: bool = True
    heal: Heal | None = None
    validate: Callable[[Any], object] | None = None
    redrive_rate: float | None = None
    repeatable: bool = True
    timeout: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "timeout", seconds(self.policy.timeout))

    def payload(self, text: str, version: int) -> Any:
        """Return the function's argument from JSON, upgraded from `version`."""
        if version < self.version:
            value = decode_object(text)
            for step in range(version, self.version):
                value = self.upgrade[step](value)
            text = encode_json(value).decode()

        return self.read(text)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Settings of a breaker; `window` and `cooldown` are in seconds."""

    threshold: int = 5
    window: float = 10.0
    cooldown: float = 5.0


@dataclass(frozen=True, slots=True)
class Death:
    """Argument of `on_dead`. The message is the stored one: short, no secrets."""

    id: int
    kind: str
    attempt: int
    reason: str
    category: str
    error_class: str
    message: str
    fingerprint: str
