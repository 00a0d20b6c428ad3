"""Random rollouts against the real SQL: no regression is missed, and none is false.

Versions run side by side, are rolled back and backported. Old workers settle deaths late,
even in transactions that commit after the next steps. Operators resolve groups, rightly or
wrongly, and take that back. An oracle of its own, which orders a fixed list of versions,
says after each round what each group must show.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from redrive.dead_letters.groups import store as groups
from redrive.worker import store
from tests.factories import Claimed, claim_one, failure, let_die, make_job, redrive
from tests.postgres import Connection, Database

Figures = dict[str, int]

CATALOGUE = {
    line: [f"{line}.{patch}{stage}" for patch in range(4) for stage in ("-rc1", "")]
    for line in ("1.9", "1.10", "2.0")
}
"""Release line -> its versions, ascending; the lines ascend, too."""

VERSIONS = [version for line in CATALOGUE.values() for version in line]
WITHOUT_ORDER = ("", "3f2a91c", "main-7c0ffee")
STEPS = 100


def marked(fixes: list[str]) -> set[str]:
    """Return the versions with the fix: walk from each one to the end of its line."""
    found = set(VERSIONS[max(map(VERSIONS.index, fixes)) :])
    for line in CATALOGUE.values():
        for fix in set(fixes) & set(line):
            found |= set(line[line.index(fix) :])
    return found


@dataclass
class Oracle:
    """What one group must show."""

    died_in: set[str] = field(default_factory=set[str])
    since: Counter[str] = field(default_factory=Counter[str])
    fixes: list[str] | None = None
    regressed_in: set[str] = field(default_factory=set[str])
    deaths: int = 0
    regressions: int = 0

    def dies(self, version: str) -> None:
        """Note a death, in the order of commits."""
        self.deaths += 1
        self.died_in |= {version} - {""}
        if self.fixes is None:
            return
        self.since[version] += 1
        if version in marked(self.fixes):
            self.regressions += not self.regressed_in
            self.regressed_in.add(version)

    def refuses(self, fixes: list[str]) -> bool:
        """Return True if the group has died in a version that would have the fix."""
        return bool(self.died_in & marked(fixes))

    def resolves(self, fixes: list[str] | None) -> None:
        """Note that somebody named the versions with the fix, or took that back."""
        self.fixes, self.since, self.regressed_in = fixes, Counter(), set()

    @property
    def state(self) -> str:
        """The state that the group must have."""
        if self.fixes is None:
            return "open"
        return "regressed" if self.regressed_in else "resolved"


@dataclass
class Rollout:
    """One application: its workers by version, its group, and what is in flight."""

    name: str
    chance: random.Random
    fleet: list[str]
    oracle: Oracle = field(default_factory=Oracle)
    running: list[tuple[str, int, Claimed]] = field(
        default_factory=list[tuple[str, int, Claimed]]
    )
    letters: list[int] = field(default_factory=list[int])
    broken: set[str] = field(default_factory=set[str])

    def version(self) -> str:
        """Return the version of one of its workers."""
        return self.chance.choice(self.fleet)


class World:
    """Rollouts in one database, whose steps mix."""

    def __init__(self, database: Database, seeds: range) -> None:
        self._database = database
        self._conn = database.conn
        self._late = database.connect()
        self._is_late: tuple[Rollout, str] | None = None
        self._workers: dict[str, int] = {}
        self._chance = random.Random(seeds.start)
        self.rollouts = [self._rollout(seed) for seed in seeds]
        self.figures: Counter[str] = Counter()

    def _rollout(self, seed: int) -> Rollout:
        chance = random.Random(seed)
        broken = set(chance.sample(VERSIONS, chance.randint(8, len(VERSIONS))))
        broken |= set(WITHOUT_ORDER)
        fleet = [chance.choice(VERSIONS) for _ in range(2)]
        return Rollout(f"app.s{seed:06}", chance, fleet, broken=broken)

    def run(self) -> Figures:
        """Take the steps of all rollouts in random order; return the figures."""
        turns = [rollout for rollout in self.rollouts for _ in range(STEPS)]
        self._chance.shuffle(turns)
        for n, rollout in enumerate(turns):
            self._step(rollout)
            if n % 50 == 49:
                self._settle_all()
        self._settle_all()
        return {"rollouts": len(self.rollouts), **self.figures}

    def _step(self, rollout: Rollout) -> None:
        self._tend()
        step = rollout.chance.choices(
            (self._deploy, self._start, self._end, self._again, self._resolve),
            (3, 6, 6, 1, 2),
        )[0]
        step(rollout)

    def _tend(self) -> None:
        """Do some of what chores do, or nothing."""
        if self._chance.random() < 0.3:
            self._conn.execute("select redrive.fold_groups_v1()")
        if self._chance.random() < 0.3:
            groups.judge(self._conn)
        if self._is_late and self._chance.random() < 0.3:
            self._commit()

    def _deploy(self, rollout: Rollout) -> None:
        """Replace one worker: by a next version, an older one, or one without an order."""
        names = (
            (*VERSIONS, *WITHOUT_ORDER) if rollout.chance.random() < 0.2 else VERSIONS
        )
        rollout.fleet[rollout.chance.randrange(2)] = rollout.chance.choice(names)

    def _worker(self, version: str) -> int:
        if version not in self._workers:
            said = store.Registration("w", version, 3600.0, ["*"], None)
            self._workers[version] = store.register(self._conn, said)
        return self._workers[version]

    def _start(self, rollout: Rollout) -> None:
        """Let a worker of any running version claim a job, which it settles later."""
        make_job(self._conn, rollout.name)
        self._claimed(rollout)

    def _claimed(self, rollout: Rollout) -> None:
        version = rollout.version()
        worker = self._worker(version)
        rollout.running.append((version, worker, claim_one(self._conn, worker)))

    def _again(self, rollout: Rollout) -> None:
        """Redrive a dead letter, and let a worker claim it."""
        if rollout.letters:
            redrive(self._conn, [rollout.letters.pop()])
            self._claimed(rollout)

    def _end(self, rollout: Rollout) -> None:
        """Let a job die if its version is broken. Its worker may be gone from the fleet."""
        if not rollout.running:
            return
        at = rollout.chance.randrange(len(rollout.running))
        version, worker, job = rollout.running.pop(at)
        if version not in rollout.broken:
            let_die(self._conn, worker, job, failure=failure(fingerprint="other"))
            return
        detail = {"version": version} if rollout.chance.random() < 0.5 else {}
        record = failure(fingerprint=rollout.name, detail=detail)
        if self._is_late is None and rollout.chance.random() < 0.2:
            self._late.execute("begin")
            let_die(self._late, worker, job, failure=record)
            self._is_late = rollout, version
            return
        rollout.letters.append(let_die(self._conn, worker, job, failure=record))
        rollout.oracle.dies(version)

    def _commit(self) -> None:
        assert self._is_late
        rollout, version = self._is_late
        self._late.execute("commit")
        self._is_late = None
        rollout.oracle.dies(version)

    def _resolve(self, rollout: Rollout) -> None:
        """Name versions with the fix, rightly or not, or take that back."""
        oracle = rollout.oracle
        if oracle.regressed_in:
            self._settle()  # what supersedes a regression must not hide it from us
        if oracle.fixes is not None and rollout.chance.random() < 0.3:
            assert groups.unresolve(self._conn, rollout.name, actor="ada", why="no")
            oracle.resolves(None)
            return
        fixes = _fixes(rollout)
        if rollout.chance.random() < 0.8:  # as an operator who looks first
            others = [fixes, *(_fixes(rollout) for _ in range(9))]
            fixes = max(
                others, key=lambda one: (not oracle.refuses(one), len(marked(one)))
            )
        is_refused = oracle.refuses(fixes)
        try:
            done = groups.resolve(
                self._conn, rollout.name, fixes, actor="ada", why="fixed"
            )
        except ValueError:
            assert is_refused, (rollout.name, fixes, oracle)
            self.figures["refused"] += 1
            return
        assert not is_refused, (rollout.name, fixes, oracle)
        assert (done is not None) == (oracle.deaths > 0), (rollout.name, done)
        if done is None:
            return
        oracle.resolves(fixes)
        self.figures["resolved"] += 1
        self.figures["backports"] += len(fixes) > 1

    def _settle(self) -> None:
        settle(self._conn)

    def _settle_all(self) -> None:
        """Compare each group with its oracle, before and after all deltas are folded."""
        self._compare_counts()
        self._settle()
        self._compare_counts()
        shown = {
            group["group"]: group for group in groups.find(self._conn, closed=True)
        }
        for rollout in self.rollouts:
            oracle = rollout.oracle
            if not oracle.deaths:
                assert rollout.name not in shown
                continue
            group = shown[rollout.name]
            state, told = group["state"], group["regressed_in"]
            self.figures["missed"] += oracle.state == "regressed" != state
            self.figures["false"] += state == "regressed" != oracle.state
            assert state == oracle.state, (rollout.name, group, oracle)
            assert told is None or told in oracle.regressed_in, (group, oracle)
        counted = self._database.value(
            "select coalesce(sum(n), 0) from redrive.totals where event = 'regressed'"
        )
        self.figures["compared"] += 1
        regressions = sum(rollout.oracle.regressions for rollout in self.rollouts)
        assert counted == regressions, (counted, regressions)
        self.figures["regressions"] = regressions
        self.figures["deaths"] = sum(r.oracle.deaths for r in self.rollouts)

    def _compare_counts(self) -> None:
        """Compare the deaths since each group was resolved."""
        rows = self._database.rows(
            "select fingerprint, since, total from redrive.grouped where total > 0"
        )
        shown = {name: (since, total) for name, since, total in rows}
        for rollout in self.rollouts:
            oracle = rollout.oracle
            if oracle.deaths:
                expected = (dict(oracle.since), oracle.deaths)
                assert shown[rollout.name] == expected, (rollout.name, oracle)


def _fixes(rollout: Rollout) -> list[str]:
    """Return versions of different release lines."""
    lines = rollout.chance.sample(list(CATALOGUE), rollout.chance.choice((1, 1, 2)))
    return [rollout.chance.choice(CATALOGUE[line]) for line in lines]


def settle(conn: Connection) -> None:
    """Do the chores until nothing is left to fold or to judge."""
    while conn.execute(
        "select moved > 0 or more from redrive.fold_groups_v1()"
    ).fetchone() == (True,):
        pass
    while groups.judge(conn):
        pass


def simulate(database: Database, *, rollouts: int, seed: int) -> Figures:
    """Run this number of random rollouts; return the figures. Raises AssertionError."""
    figures = Counter({"missed": 0, "false": 0})
    figures.update(World(database, range(seed, seed + rollouts)).run())
    return dict(figures)
