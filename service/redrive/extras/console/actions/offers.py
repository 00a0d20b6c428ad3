"""Offers of an alert's link: mute a group, pause a queue, start a plan."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from redrive.database.rows import Connection
from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.pace import State
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import open_by_group
from redrive.dead_letters.groups import store as groups
from redrive.rules.brief import counted
from redrive.rules.payloads.limits import NAME
from redrive.rules.rows import Fields
from redrive.verbs.refusal import Invalid

Group = Fields
EXAMINED = 1_000
"""Count the groups among this many dead letters of a queue, the latest."""
MOST_GROUPS, MOST_PLANS = 5, 20


class Offer(NamedTuple):
    """A change that a link can name, and how many dead letters it is about."""

    word: str
    target: str
    text: str


def offers(conn: Connection, given: Mapping[str, str]) -> list[Offer]:
    """Return what can be done about an alert of a queue or a group.

    Raises:
        Refused: the queue or group is invalid or missing.
    """
    queue = _queue_of(given)
    group = given.get("group", "")
    if not queue and not group:
        raise Invalid("give the queue or the group of the alert")

    about = _groups(conn, queue, group)
    found = [_mute(each) for each in about]

    if queue:
        found.append(Offer(word="pause", target=queue, text=f"Pause queue {queue}"))

    return [*found, *_plans(conn, queue, [each["group"] for each in about])]


def _queue_of(given: Mapping[str, str]) -> str:
    """Return the queue of an alert, or "". Raises Refused if it is invalid."""
    queue = given.get("queue", "")
    if queue and not NAME.fullmatch(queue):
        raise Invalid(f"queue is {queue!r}; it must be the name of a queue")
    return queue


def _mute(group: Group) -> Offer:
    cause = f"{group['kind']}: {group['error_class']}"
    count = group["open"]
    return Offer(
        word="mute", target=group["group"], text=f"Mute {cause} ({count:,} open)"
    )


def _groups(conn: Connection, queue: str, group: str) -> list[Group]:
    """Return the largest open groups of the alert."""
    # Postgres cannot hold a NUL, so no group has such a name.
    names = []
    if group and "\0" not in group:
        names = [group]
    if not group:
        chosen = Filter(queue=(queue,), state=("open",), limit=EXAMINED)
        found = open_by_group(conn, chosen)
        names = sorted(found, key=lambda name: -found[name])[:MOST_GROUPS]

    return [each for each in (groups.show(conn, name) for name in names) if each]


def _plans(conn: Connection, queue: str, names: list[str]) -> Iterator[Offer]:
    """Yield the plans of the queue or of one of the groups."""
    for plan in campaign.find(conn, (State.PLANNED,), limit=MOST_PLANS):
        if plan["matched"] and _is_about(plan["filter"], queue, names):
            number = plan["campaign"]
            n = plan["matched"]
            text = f"Start plan {number}: redrive {counted(n, 'dead letter')}"

            yield Offer(word="campaign-start", target=str(number), text=text)


def _is_about(selects: Fields, queue: str, names: list[str]) -> bool:
    # The filter of a plan may name its group by the beginning of the fingerprint.
    beginning = selects.get("group")
    if beginning and any(name.startswith(beginning) for name in names):
        return True

    return queue in selects.get("queue", ())
