"""Turn what a database did into a module that TLC compares with docs/model/Database.tla.

A record (trials/model/recorder.py) is a list of notes, each with the transaction that it belongs to.
Transactions are put in an order in which they could have come one after the other, and each becomes
steps of the model. Jobs that share no key do not influence each other, so a record falls apart into
many short runs. Runs that differ only in their ids are one run.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Note = Mapping[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Step:
    """One action of Database.tla, and what the database gave it: ids as they were, and values."""

    op: str
    jobs: tuple[int, ...] = ()
    worker: int | None = None
    claim: int | None = None
    key: Key | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


def transactions(notes: Iterable[Note]) -> list[list[Note]]:
    """Return the notes of each transaction, in an order that a serial run could have had.

    The last note of a transaction gives its place. A transaction that saw, or waited for, what
    another one wrote made its own last note after that one had committed.
    """
    found: defaultdict[int, list[Note]] = defaultdict(list)
    for note in sorted(notes, key=lambda note: note["seq"]):
        found[note["xid"]].append(note)
    return sorted(found.values(), key=lambda of: of[-1]["seq"])


def steps_of(notes: Sequence[Note]) -> Iterator[Step]:
    """Yield the steps of one transaction. A call that settles ends what was noted before it."""
    undone = _undone(notes)
    part: list[Note] = []
    for note in notes:
        if note["what"].startswith("job") and note["id"] in undone:
            continue
        part.append(note)
        if note["what"] == "asked":
            yield from _steps(part)
            part = []
    yield from _steps(part)


def _undone(notes: Sequence[Note]) -> set[int]:
    """Return the jobs that a transaction added and took away again, as if it had done neither."""
    added = {note["id"] for note in notes if note["what"] == "job new"}
    gone = {note["id"] for note in notes if note["what"] == "job gone"}
    asked = {j for note in notes if note["what"] == "asked" for j in note["took"]}
    return (added & gone) - asked


def _steps(part: Sequence[Note]) -> Iterator[Step]:
    by: defaultdict[str, dict[Any, Note]] = defaultdict(dict)
    for note in part:
        by[note["what"]][_place(note)] = note
    yield from _of_workers(by, "worker new", "worker lost")
    asked_alone = {note["worker"] for note in part if note["what"] == "runs alone"}
    for w in by["worker alone"].keys() - asked_alone:
        yield Step("alone without being asked", worker=w)
    moved = _moved(part)
    again = {j for (j, _), change in moved.items() if change == ("open", "redriven")}
    for j, note in by["job new"].items():
        op = "Redrive" if j in again else "Enqueue"
        yield Step(op, (j,), values={"parked": note["parked"]})
    settled = set[int]()
    for asked in by["asked"].values():
        for step in _settled(asked, by):
            settled.update(step.jobs if step.op != "Refused" else ())
            yield step
    for j in by["job gone"].keys() - settled:
        yield Step("Cancel", (j,))
    for c, note in by["claim new"].items():
        yield Step("Claim", tuple(note["ids"]), note["worker"], c)
    known = {j for note in part if note["what"] == "retired" for j in note["known"]}
    for j, note in by["job changed"].items():
        yield from _changed(note, is_settled=j in settled, is_known=j in known)
    yield from (Step("EndClaims", claim=c) for c in by["claim gone"])
    over = by["job gone"].keys()
    for (j, redrives), change in moved.items():
        is_told = j in again or (change == ("redriven", "resolved") and j in over)
        if change[0] != change[1] and not is_told:
            op = DECISIONS.get(change, "moved without a reason")
            yield Step(op, (j,), values={"redrives": redrives})
    yield from _purged(part)
    yield from (Step("Forget", key=key) for key in by["key gone"])
    yield from _of_workers(by, "worker closed", "worker gone")


def _purged(part: Sequence[Note]) -> Iterator[Step]:
    """Yield the dead letters that were deleted. A caller names each of them."""
    asked = {
        letter
        for note in part
        if note["what"] == "purges"
        for letter in zip(note["ids"], note["generations"], strict=True)
    }
    for note in part:
        if note["what"] == "dead gone":
            j, redrives = _place(note)
            op = "Purge" if (j, redrives) in asked else "purged without being asked"
            yield Step(op, (j,), values={"redrives": redrives})


def _of_workers(by: Mapping[str, dict[Any, Note]], *whats: str) -> Iterator[Step]:
    for what in whats:
        for w, note in by.get(what, {}).items():
            op = WORKER_STEPS[what]
            values: dict[str, Any] = {}
            if op == "Register":
                values["state"] = "lost" if note["lost"] else "live"
            elif op == "MarkLost":
                values["silent"] = note["silent"]
            yield Step(op, worker=w, values=values)


DECISIONS = {("open", "dismissed"): "Dismiss", ("dismissed", "open"): "Reopen"}
WORKER_STEPS = {
    "worker new": "Register",
    "worker closed": "Close",
    "worker lost": "MarkLost",
    "worker gone": "Leave",
}
OUTCOMES = {
    "complete": "Complete",
    "dead": "Bury",
    "cancel": "Heed",
    "rescue": "Rescue",
}


def _place(note: Note) -> Any:
    if note["what"].startswith("dead"):
        return note["id"], note["redrives"]
    if note["what"].startswith("key"):
        return note["kind"], note["key"]
    return note.get("id")


def _moved(part: Sequence[Note]) -> dict[tuple[int, int], tuple[str, str]]:
    """Return the first and the last state of each dead letter that changed."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for note in part:
        if note["what"] == "dead changed":
            place = note["id"], note["redrives"]
            found[place] = found.get(place, (note["from"], ""))[0], note["to"]
    return found


def _settled(asked: Note, by: Mapping[str, dict[Any, Note]]) -> Iterator[Step]:
    """Yield what became of each settlement that a call asked for."""
    outcomes = asked.get("outcomes") or ["complete"] * len(asked["ids"])
    # A handler that completes its job names no claim if there is none any more.
    claims = [c or 0 for c in asked["claims"]]
    rows = (asked["workers"], claims, asked["ids"], asked["deliveries"])
    settlements = list(zip(*rows, outcomes, strict=True))
    # A batch may name a job twice: as it was claimed, and as it was claimed before. The row shows
    # which of them counted.
    counted = {}
    for n, (_, _, j, d, outcome) in enumerate(settlements):
        if j in asked["took"] and _changed_row(by, j, outcome) is not None:
            fits = _changed_row(by, j, outcome) == d - 1
            counted[j] = n if fits or j not in counted else counted[j]
    for n, (w, c, j, d, outcome) in enumerate(settlements):
        if counted.get(j) != n:
            yield Step("Refused", (j,), w, c, values={"d": d})
            continue
        values: dict[str, Any] = {"d": d}
        op = OUTCOMES.get(outcome, "Return")
        if op == "Bury":
            dead = next(
                (n for place, n in by["dead new"].items() if place[0] == j), None
            )
            if dead is None:
                op = "in neither table"  # no action of the model has this name
            else:
                values |= {"reason": dead["reason"], "holds": dead["holds"]}
        elif op in {"Return", "Rescue"}:
            values["losses"] = by["job changed"][j]["losses"]
        elif op == "Complete":
            values["kept"] = [place[1] for place in by["key new"]]
        yield Step(op, (j,), w, c, values=values)


def _changed_row(by: Mapping[str, dict[Any, Note]], j: int, outcome: str) -> int | None:
    """Return the deliveries of the row that such a settlement changed; None if it changed none."""
    if outcome in {"complete", "dead", "cancel"}:
        return by["job gone"][j]["deliveries"] if j in by["job gone"] else None
    return by["job changed"][j]["was"]["deliveries"] if j in by["job changed"] else None


def _changed(note: Note, *, is_settled: bool, is_known: bool) -> Iterator[Step]:
    """Yield what happened to a row that stayed. `is_known`: its worker said that it still has it."""
    job, was = (note["id"],), note["was"]
    if not is_settled:
        if note["deliveries"] != was["deliveries"]:
            yield Step("gave back a known job" if is_known else "GiveBack", job)
        elif note["losses"] < was["losses"]:
            yield Step("Forgive", job)
        elif note["parked"] != was["parked"]:
            yield Step("Park" if note["parked"] else "Wake", job)
    yield Step(
        "See", job, values={name: note[name] for name in ("deliveries", "losses")}
    )


class Kinship:
    """Which jobs share a key, so that what happens to one may depend on another."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self.keys: dict[int, Key | None] = {}
        self.orders: dict[int, Key | None] = {}
        self._of: dict[Any, Any] = {}
        for note in notes:
            if note["what"] == "job new" and note["id"] not in self.keys:
                j = note["id"]
                self.keys[j] = note["key"] and (note["kind"], note["key"])
                self.orders[j] = note["okey"] and (note["queue"], note["okey"])
                for shared in (("key", self.keys[j]), ("order", self.orders[j])):
                    if shared[1]:
                        self._of[self.root(j)] = self.root(shared)

    def knows(self, j: int) -> bool:
        """Return whether the record shows how a job began."""
        return j in self.keys

    def root(self, one: Any) -> Any:
        """Return what stands for all relatives of a job or a key."""
        path = []
        while (up := self._of.get(one, one)) != one:
            path.append(one)
            one = up
        self._of.update(dict.fromkeys(path, one))
        return one


def runs(notes: Sequence[Note]) -> dict[str, list[int]]:
    """Return each run as a tuple of TLA+, with the jobs of the first record that had it."""
    kin = Kinship(notes)
    steps = [step for of in transactions(notes) for step in steps_of(of)]
    found: defaultdict[Any, list[Step]] = defaultdict(list)
    told = _told(steps, kin)
    for step in steps:
        for root in _relatives(step, kin, told):
            jobs = tuple(j for j in step.jobs if kin.knows(j) and kin.root(j) == root)
            found[root].append(replace(step, jobs=jobs))
    named: dict[str, list[int]] = {}
    for of in found.values():
        text = _in_tla(of, kin)
        named.setdefault(text, sorted({j for step in of for j in step.jobs}))
    return named


Told = Mapping[tuple[str, int | None], Mapping[Any, None]]


def _told(steps: Iterable[Step], kin: Kinship) -> Told:
    """Return for each claim and worker the families whose jobs it ever had."""
    found: defaultdict[tuple[str, int | None], dict[Any, None]] = defaultdict(dict)
    for step in steps:
        for j in filter(kin.knows, step.jobs):
            found["claim", step.claim][kin.root(j)] = None
            found["worker", step.worker][kin.root(j)] = None
    return found


def _relatives(step: Step, kin: Kinship, told: Told) -> Iterable[Any]:
    """Return the families that a step is part of."""
    if step.jobs:
        return dict.fromkeys(map(kin.root, filter(kin.knows, step.jobs)))
    if step.key is not None:
        return [kin.root(("key", step.key))]
    place = ("claim", step.claim) if step.claim is not None else ("worker", step.worker)
    return told.get(place, {})


def _in_tla(steps: Sequence[Step], kin: Kinship) -> str:
    """Return a run with small ids: jobs keep their order, other things are numbered as they come."""
    jobs = {
        j: n for n, j in enumerate(sorted({j for step in steps for j in step.jobs}), 1)
    }
    names: dict[Any, int] = {}

    def small(kind: str, one: Any) -> int:
        of_kind = sum(1 for named in names if named[0] == kind)
        return names.setdefault((kind, one), of_kind + 1)

    def named(kind: str, one: Key | None) -> str:
        return f"{kind}{small(kind, one)}" if one else ""

    lines = list[str]()
    for step in steps:
        values: dict[str, Any] = dict(step.values)
        if step.op in ONE_JOB:
            (j,) = step.jobs
            values["j"] = jobs[j]
            if step.op == "Enqueue":
                values["key"], values["okey"] = (
                    named("k", kin.keys[j]),
                    named("o", kin.orders[j]),
                )
            if step.op == "Complete":
                key = kin.keys[j]
                values["kept"] = key is not None and key[1] in values["kept"]
        elif step.jobs:
            values["jobs"] = {jobs[j] for j in step.jobs}
        if step.worker is not None:
            values["w"] = small("w", step.worker)
        if step.claim is not None:
            values["c"] = small("c", step.claim)
        if step.key is not None:
            values["key"] = named("k", step.key)
        fields = ", ".join(
            f"{name} |-> {_value(value)}" for name, value in values.items()
        )
        lines.append(f'[op |-> "{step.op}"' + (f", {fields}]" if fields else "]"))
    return "<<" + ",\n    ".join(lines) + ">>"


ONE_JOB = {
    "Enqueue", "Redrive", "Complete", "Return", "Rescue", "Bury", "Heed", "Refused", "Cancel", "See",
    "GiveBack", "Forgive", "Park", "Wake", "Dismiss", "Reopen", "Purge", "in neither table", "moved without a reason",
    "gave back a known job", "purged without being asked",
}  # fmt: skip


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return f'"{value}"'
        case set():
            return "{" + ", ".join(map(str, sorted(value))) + "}"
        case _:
            return str(value)


def module(found: Sequence[str]) -> str:
    """Return the module Record of TLA+, which Trace.tla reads."""
    names = [f"R{n}" for n in range(1, len(found) + 1)]
    texts = "\n".join(
        f"{name} == {run}" for name, run in zip(names, found, strict=True)
    )
    return f"---- MODULE Record ----\n{texts}\nRuns == <<{', '.join(names)}>>\n====\n"
