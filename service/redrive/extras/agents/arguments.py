"""Arguments of the tools. Their JSON schemas are made from these classes.

An agent chooses the values, so each is bounded. No field compares a value with a
payload: the number of matches would then reveal the payload.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from redrive.dead_letters.filter import Filter
from redrive.extras.proposals.store import MOST_EDITED
from redrive.rules.instants import instant
from redrive.verbs.failing import FAILING
from redrive.verbs.groups import GROUPS

Text = Annotated[str, Meta(min_length=1, max_length=200)]
Why = Annotated[str, Meta(pattern=r"\S", max_length=1000)]
Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Ids = Annotated[list[Number], Meta(max_length=MOST_EDITED)]
Since = Annotated[
    str,
    Meta(
        min_length=1, max_length=40, description="An instant, or a length such as 6h."
    ),
]

ACTIONS = {"mute": GROUPS["mute"], **FAILING}


class Arguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of a tool."""


class ListGroups(Arguments):
    """List the causes of failing jobs and dead letters, the largest first.

    `failing` counts live jobs that have failed and are retried, and `open` dead
    letters. `now` tells what share of attempts fails. `versions` tells in which
    versions it happened, and since when.
    """

    kind: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 20


class ExplainGroup(Arguments):
    """Compare the dead letters of a group with other jobs, and tell what is different."""

    group: Text


class ShowDeadLetter(Arguments):
    """Show a dead letter with its failures. Secrets of its payload are redacted."""

    job: Number


class WhyJob(Arguments):
    """Tell the state of a job, why it does not run, and what happened to it."""

    job: Number


class Series(Arguments):
    """Show how many jobs were enqueued, ended and died over time."""

    queue: Text | None = None
    kind: Text | None = None
    since: Since = "6h"


class Report(Arguments):
    """Report on one group, or on all dead letters since a time."""

    group: Text | None = None
    since: Since = "24h"


class ProposeCampaign(Arguments):
    """Propose a redrive of dead letters. Nothing runs until a person starts the plan."""

    why: Why
    ids: Ids = []
    group: Text | None = None
    kind: Text | None = None
    queue: Text | None = None
    error_class: Text | None = None
    version: Text | None = None
    since: Since | None = None
    until: Since | None = None
    limit: Number | None = None


class Operation(msgspec.Struct, forbid_unknown_fields=True):
    """An operation of a JSON Patch (RFC 6902).

    The other operations compare or copy values of the payload, and so could reveal
    them.
    """

    op: Literal["add", "remove", "replace"]
    path: Annotated[str, Meta(min_length=1, max_length=500)]
    value: Any | UnsetType = UNSET


class ProposeEdit(Arguments):
    """Propose a correction of payloads. Nothing changes until a person starts it."""

    why: Why
    patch: Annotated[list[Operation], Meta(min_length=1, max_length=20)]
    ids: Ids = []
    group: Text | None = None


class ProposeChange(Arguments):
    """Propose a change of a group or of its failing jobs. A person must start it."""

    why: Why
    group: Text
    action: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(ACTIONS)})$",
            description=" ".join(
                f"{word}: {told.what}" for word, told in ACTIONS.items()
            ),
        ),
    ]
    hours: Annotated[float, Meta(gt=0, le=168, description="Length of a mute.")] = 2


def when(text: str | None) -> datetime | None:
    """Parse an instant, or a length of time before now.

    Raises:
        ValueError: the text is neither.
    """
    if text is None:
        return None
    return instant(text, datetime.now(UTC))


def filter_of(given: ProposeCampaign | ProposeEdit, most: int | None = None) -> Filter:
    """Return the selection of a proposal.

    Args:
        most: number of dead letters to select at most; None takes the agent's limit.

    Raises:
        ValueError: a time is invalid.
    """
    fields = msgspec.structs.asdict(given)
    return Filter(
        ids=given.ids,
        group=given.group,
        kind=_one(fields.get("kind")),
        queue=_one(fields.get("queue")),
        error_class=_one(fields.get("error_class")),
        version=_one(fields.get("version")),
        state=("open",),
        since=when(fields.get("since")),
        until=when(fields.get("until")),
        limit=most or fields.get("limit"),
    )


def _one(text: str | None) -> Sequence[str]:
    return () if text is None else (text,)
