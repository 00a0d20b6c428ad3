"""The dashboard about dead letters: deaths, causes, trends and redrives."""

from tools.dashboards.overview import ATTEMPTS, DIED, ENDED, added_within
from tools.dashboards.parts import (
    BAD,
    CALM,
    GOOD,
    GREY,
    INSTALLATION,
    QUEUE,
    VIOLET,
    WARN,
    WHERE,
    Board,
    board,
    chart,
    figure,
    fill,
    grown_in_range,
    grown_per_second,
    note,
    now,
    objective,
    or_zero,
    quantile,
    query,
    rate,
    rows,
    same,
    total,
)

DEPTH = same("redrive_dlq_depth", "queue", "reason")
FAILING = same("redrive_failing_jobs", "queue", "kind", "category")
ATTEMPTED = rate(ATTEMPTS, "kind", where=f'{QUEUE}, outcome=~"succeeded|retried|dead"')
FAILED = rate(ATTEMPTS, "kind", where=f'{QUEUE}, outcome=~"retried|dead"')
FAIL = ("RedriveKindFailing", "RedriveCriticalKindFailing")
GROWTH = ("RedriveDeadLettersGrowingFast", "RedriveDeadLettersGrowingSteadily")
OUTCOMES = {"succeeded": GOOD, "dead_again": BAD, "cancelled": GREY, "blocked": WARN}
ACTIONS = {"redriven": CALM, "resolved": GOOD, "dismissed": VIOLET, "purged": GREY}

STEPS = """
1. **Stop more from coming.** A deploy at the time it started? Undo it. A dependency down? \
Wait for it.
2. **Look at groups, not at jobs:** `redrive dlq groups`, then \
`redrive dlq show <group>`.
3. **Try a few:** `redrive dlq redrive --queue <queue> --limit 5 --why "<ticket>: canaries"`;
   watch *Redrive outcomes*.
4. **Then the rest, slowly:** \
`redrive dlq redrive --queue <queue> --rate 5 --why "<ticket>: cause fixed"`.

Nothing changes without `--yes`. Dead letters are safe while you look. [Runbook](${runbook})
"""


def build(*, show_cluster: bool = False) -> Board:
    """Build the dashboard."""
    made = board(
        "redrive-dead-letters",
        "Redrive / Dead letters",
        "Jobs that fail and are retried, and jobs that failed for good: growth against the"
        " objectives, reasons, age, and what redriving them led to.",
        show_cluster=show_cluster,
    )
    return fill(
        made,
        *figures(),
        Before_they_die=failing(),
        Growth=growth(),
        What_lies_there=stock(),
        Back_to_work=redriven(),
    )


def figures() -> list:
    """Return the panels of the first line."""
    outcomes = 'outcome=~"succeeded|dead_again"'
    succeeded = grown_in_range(
        "redrive_outcomes", where=f'{QUEUE}, outcome="succeeded"'
    )
    ended = grown_in_range("redrive_outcomes", where=f"{QUEUE}, {outcomes}")
    return [
        figure(
            "Failing",
            "Jobs that have failed and are retried. Nothing is lost yet.",
            "short",
            or_zero(total(FAILING)),
            steps=((None, GOOD), (1, WARN)),
            alerts=FAIL,
        ),
        figure(
            "Open",
            "Dead letters that wait for somebody to decide.",
            "short",
            or_zero(total(DEPTH)),
            steps=((None, GOOD), (1, WARN)),
            alerts=("RedriveDeadLettersUnattended", "RedriveDeadLettersUnacknowledged"),
        ),
        figure(
            "Added per minute",
            "In the last full minute, as the database counted them.",
            "cpm",
            or_zero(total(same("redrive_dlq_added_per_minute", "queue"))),
            steps=((None, GOOD), (1, BAD)),
            alerts=GROWTH,
        ),
        figure(
            "Added in this range",
            "Over the whole time that is shown.",
            "short",
            grown_in_range("dlq_added"),
            decimals=0,
            over_range=True,
        ),
        figure(
            "Oldest",
            "Age of the oldest open dead letter.",
            "s",
            or_zero(f"max(redrive_dlq_oldest_age_seconds{{{QUEUE}}})"),
            alerts=("RedriveDeadLettersUnattended",),
            width=4,
        ),
        figure(
            "Redriven in this range",
            "Put back to work, over the whole time that is shown.",
            "short",
            grown_in_range("dlq_removed", where=f'{QUEUE}, action="redriven"'),
            decimals=0,
            over_range=True,
            width=4,
        ),
        figure(
            "Redrives that succeeded",
            "Of the redriven jobs that ended in this range. Nothing: none ended.",
            "percentunit",
            f"{succeeded} / ({ended} > 0)",
            steps=((None, BAD), (0.5, WARN), (0.9, GOOD)),
            alerts=("RedriveRedriveRefillsDeadLetters",),
            over_range=True,
            width=4,
        ),
    ]


def failing() -> list:
    """Return the panels about jobs that fail and are retried."""
    return [
        chart(
            "Failing by kind",
            "Jobs that have failed and are retried: redrive dlq groups. Nothing is lost yet.",
            "short",
            query(total(FAILING, "kind"), "{{kind}}"),
            stacked=True,
            alerts=FAIL,
        ),
        chart(
            "Failing by category",
            "transient is an outage, throttled a rate limit, auth a bad credential.",
            "short",
            query(total(FAILING, "category"), "{{category}}"),
            stacked=True,
        ),
        chart(
            "Share of attempts that fail",
            "By kind, whether the job is retried or dies. Dashed: the objective failed_ratio.",
            "percentunit",
            query(f"({FAILED} or 0 * {ATTEMPTED}) / ({ATTEMPTED} > 0)", "{{kind}}"),
            objective("failed_ratio"),
            alerts=FAIL,
            most=1,
        ),
    ]


def growth() -> list:
    """Return the panels about figures that page."""
    return [
        chart(
            "Added per minute by reason",
            "When it started, and what kind of trouble it is.",
            "cpm",
            query(f"60 * ({grown_per_second('dlq_added', 'reason')})", "{{reason}}"),
            stacked=True,
            alerts=(*GROWTH, "RedriveDeadLetterOnCriticalQueue"),
            width=12,
        ),
        chart(
            "Added per minute by kind",
            "Whose work it is.",
            "cpm",
            query(f"60 * ({grown_per_second('dlq_added', 'kind')})", "{{kind}}"),
            stacked=True,
            alerts=GROWTH,
            width=12,
        ),
        added_within(
            "5m", "5 minutes", "dlq_added_5m", "RedriveDeadLettersGrowingFast"
        ),
        added_within(
            "1h", "an hour", "dlq_added_1h", "RedriveDeadLettersGrowingSteadily"
        ),
        chart(
            "Share of jobs that die",
            "Of the jobs that ended, the share that became dead letters. Dashed: the objective"
            " dead_ratio; at 14.4 times of it, a month's budget is gone in two days.",
            "percentunit",
            query(f"({DIED} or 0 * {ENDED}) / ({ENDED} > 0)", "{{queue}}"),
            objective("dead_ratio"),
            alerts=(
                "RedriveDeadLetterBudgetBurningFast",
                "RedriveDeadLetterBudgetBurningSlowly",
            ),
        ),
    ]


def stock() -> list:
    """Return the panels about dead letters that await a decision."""
    labels = {"queue": "Queue", "kind": "Kind", "reason": "Reason"}
    return [
        chart(
            "Open by reason",
            "Dead letters that nobody has decided about.",
            "short",
            query(total(DEPTH, "reason"), "{{reason}}"),
            stacked=True,
            width=6,
        ),
        chart(
            "Oldest",
            "Age of the oldest open dead letter by queue. Dashed: the objective"
            " dlq_oldest_age_seconds.",
            "s",
            query(
                f"max by (queue) (redrive_dlq_oldest_age_seconds{{{QUEUE}}})",
                "{{queue}}",
            ),
            objective("dlq_oldest_age_seconds"),
            alerts=("RedriveDeadLettersUnattended",),
            width=6,
        ),
        chart(
            "Time to DLQ",
            "From a job's enqueueing to its first death. Short: retries end before an outage does."
            " Long: people learn late.",
            "s",
            query(quantile(0.5, "redrive_dlq_time_to_death_seconds"), "p50"),
            query(quantile(0.9, "redrive_dlq_time_to_death_seconds"), "p90"),
            colors={"p50": CALM, "p90": WARN},
            width=6,
        ),
        note(
            STEPS,
            title="What to do",
            description="The way from a page to an empty dead letter queue.",
            width=6,
        ),
        chart(
            "Not acknowledged",
            "Open dead letters of groups that nobody has acknowledged, by queue: redrive"
            " dlq groups --unacknowledged.",
            "short",
            query(
                total(same("redrive_dlq_unacknowledged", "queue"), "queue"), "{{queue}}"
            ),
            stacked=True,
            width=12,
        ),
        chart(
            "Longest wait for somebody",
            "How long a group has had open dead letters and no acknowledgement. Dashed:"
            " the objective dlq_unacknowledged_age_seconds.",
            "s",
            query(
                f"max by (queue) (redrive_dlq_unacknowledged_age_seconds{{{QUEUE}}})",
                "{{queue}}",
            ),
            objective("dlq_unacknowledged_age_seconds"),
            alerts=("RedriveDeadLettersUnacknowledged",),
            width=12,
        ),
        chart(
            "Regressed and new groups",
            "Groups that are new, and resolved groups that died in a version with the fix,"
            " within 15 minutes before each instant. To see them: redrive dlq groups --state"
            " regressed.",
            "short",
            query(_groups_within("dlq_group_regressions"), "regressed, {{kind}}"),
            query(_groups_within("dlq_groups_new"), "new, {{kind}}"),
            alerts=("RedriveGroupRegressed", "RedriveGroupNew"),
            width=24,
        ),
        rows(
            "By queue, kind and reason",
            "What died in this range. The kind tells whose it is, the reason where to look.",
            {"Added": (now(f"{grown_in_range('dlq_added', *labels)} > 0"), "short")},
            labels=labels,
            sort_by="Added",
            width=24,
        ),
    ]


def _groups_within(counter: str) -> str:
    """Return the number that the alert compares, or an estimate without its rules."""
    grown = total(f"redrive:{counter}:increase15m{{{QUEUE}}}", "kind")
    raw = f"rate(redrive_{counter}_total{{{QUEUE}}}[$__rate_interval])"
    estimate = f"max by ({INSTALLATION}, queue, kind) ({raw})"
    return f"{grown} or 900 * {total(estimate, 'kind')}"


def redriven() -> list:
    """Return the panels about the success of redrives."""
    return [
        chart(
            "Removed by action",
            "redriven: back to work; resolved: its work is done; dismissed: won't fix; purged:"
            " past retention.",
            "cpm",
            query(f"60 * ({grown_per_second('dlq_removed', 'action')})", "{{action}}"),
            colors=ACTIONS,
            stacked=True,
            width=12,
        ),
        chart(
            "Redrive outcomes",
            "What became of redriven jobs. dead_again: they were redriven without a cure.",
            "cpm",
            query(
                f"60 * ({grown_per_second('redrive_outcomes', 'outcome')})",
                "{{outcome}}",
            ),
            colors=OUTCOMES,
            stacked=True,
            alerts=("RedriveRedriveRefillsDeadLetters",),
            width=12,
        ),
        chart(
            "Campaigns",
            "Those that are not over, and the dead letters whose turn has not come: redrive"
            " campaign ls.",
            "short",
            query(
                total(same("redrive_campaigns", "state", where=WHERE), "state"),
                "{{state}}",
            ),
            query(
                total(same("redrive_campaign_waiting_jobs", where=WHERE)),
                "dead letters to go",
            ),
            width=12,
        ),
        chart(
            "Died again",
            "Of what campaigns put back since they were started or resumed; of several the"
            " largest share. They abort by themselves above their limit.",
            "percentunit",
            query(f"max(redrive_campaign_dead_again_ratio{{{WHERE}}})", "dead again"),
            most=1,
            width=12,
        ),
    ]
