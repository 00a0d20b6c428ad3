"""Changes that start or reject what an agent proposes."""

from collections.abc import Mapping
from dataclasses import replace

from redrive.database.rows import Connection
from redrive.extras.proposals import store as proposals
from redrive.handlers import Handlers
from redrive.rules.brief import counted
from redrive.rules.rows import Fields, Row, Signed
from redrive.verbs.failing import FAILING
from redrive.verbs.query import Query
from redrive.verbs.refusal import Conflict
from redrive.verbs.verb import Done, Opening, Order, Preview, Verb, id_of, named

COLUMNS = ("action", "what", "proposed_by", "why", "created_at")
PATH = "/proposals"


def _number_of(query: Query) -> int:
    return id_of([("id", named(query, "proposal"))])


def _preview(conn: Connection, order: Order) -> Preview:
    number = _number_of(order.query)
    found = proposals.show(conn, number)
    if found is None:
        obstacle = f"There is no open proposal {number} other than a redrive."
        return Preview(matched=0, obstacle=obstacle)

    remark = f"{found['proposed_by']} proposes it: {found['why']}"
    rows = [found | {"what": proposals.what(found)}]
    return Preview(rows=rows, remarks=(remark,))


def _preview_start(conn: Connection, order: Order) -> Preview:
    seen = _preview(conn, order)
    if seen.obstacle is not None:
        return seen

    (found,) = seen.rows
    change = FAILING.get(found["action"])
    if change is None:
        effects = proposals.effects(conn, found, order.handlers or Handlers())
        return replace(seen, remarks=(*seen.remarks, *effects))

    effect = change.look(conn, _ordered(found, order))
    remarks = (*seen.remarks, counted(effect.matched, effect.unit), *effect.remarks)
    return replace(seen, remarks=remarks, obstacle=effect.obstacle)


def _ordered(found: Fields, order: Order) -> Order:
    """Return the order of a proposed change of failing jobs."""
    query = [("group", found["detail"]["group"])]
    return replace(order, query=query, why=proposals.reason(found, order.why), more={})


def _open_one(conn: Connection, query: Query) -> Row:
    """Return the open proposal of a query. Raises Refused if it is not open."""
    number = _number_of(query)
    found = proposals.show(conn, number)
    if found is None:
        raise Conflict(f"there is no open proposal {number}")

    return found


def _start(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        found = _open_one(conn, order.query)
        signed = _signed(found, order)
        number = found["proposal"]
        change = FAILING.get(found["action"])
        if change is None:
            checked_by = order.handlers or Handlers()
            changed = proposals.start(conn, number, checked_by, **signed)
            return _done(found, "started", changed=changed)

    # A change that is refused leaves the proposal open.
    done = change.do(opening, _ordered(found, order))
    with opening() as conn:
        proposals.decide(conn, number, is_started=True, **signed)

    return replace(done, report={**done.report, **_done(found, "started").report})


def _signed(found: Row, order: Order) -> Signed:
    return Signed(actor=order.actor, why=proposals.reason(found, order.why))


def _reject(opening: Opening, order: Order) -> Done:
    with opening() as conn:
        found = _open_one(conn, order.query)
        number = found["proposal"]
        proposals.decide(conn, number, is_started=False, **_signed(found, order))

    return _done(found, "rejected")


def _done(found: Row, state: str, **more: int) -> Done:
    number = found["proposal"]
    return Done(
        text=f"Proposal {number} is {state}.",
        report={"proposal": number, "action": found["action"], "state": state, **more},
        path=PATH,
    )


PROPOSALS: Mapping[str, Verb] = {
    "proposal-start": Verb(
        "Start what an agent proposes, other than a redrive.",
        "proposal start {proposal}",
        "Start",
        "proposal",
        _preview_start,
        _start,
        columns=COLUMNS,
        names=("proposal",),
        decodes=True,
        help="""
            \b
            redrive proposal start 7 --why 'the importer wrote EURO'

            The command shows the changes and asks. Only payloads that are as the agent
            saw them are edited. To start a proposed redrive, type redrive campaign
            start.
        """,
    ),
    "proposal-reject": Verb(
        "Reject what an agent proposes, other than a redrive.",
        "proposal reject {proposal}",
        "Reject",
        "proposal",
        _preview,
        _reject,
        columns=COLUMNS,
        names=("proposal",),
        help="""
            \b
            redrive proposal reject 7 --why 'the importer is right'

            To reject a proposed redrive, type redrive campaign cancel.
        """,
    ),
}
"""Word in the address -> change."""
