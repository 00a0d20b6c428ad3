"""redrive dlq."""

import math
from typing import Any

import click

from redrive.cli import groups as group_commands
from redrive.cli.common import (
    Duration,
    acting_options,
    confirm,
    counted,
    database,
    database_option,
    emit,
    filter_from,
    filter_options,
    json_option,
    printable,
    progress,
    require_why,
    settings_for,
    table,
)
from redrive.dead_letters import groups
from redrive.dead_letters import redrive as dead_letters

ENV = "REDRIVE_REDRIVE"
FINGERPRINT_LENGTH = 16
NAME_LENGTH = 255
EVIDENCE = (
    "exit",
    "peak_memory_bytes",
    "oom_kills",
    "running",
    "pod",
    "node",
    "environment",
    "version",
)
"""What `show` prints of an attempt's circumstances, where they are known."""


@click.group()
def dlq() -> None:
    """Dead letters: look, put back to work, dismiss."""


for _command in (group_commands.list_groups, group_commands.report, group_commands.mute):
    dlq.add_command(_command)


@dlq.command("ls")
@filter_options()
@database_option
@json_option
def list_dead_letters(database_url: str | None, as_json: bool, **options: Any) -> None:
    """List dead letters, the latest first; open ones unless --state says otherwise."""
    chosen = filter_from(options, states=("open",))
    with database(settings_for(database_url)) as conn:
        found = dead_letters.find(conn, chosen)
        if as_json:
            for row in found:
                emit(row)
            return
        columns = (
            "id",
            "kind",
            "queue",
            "reason",
            "error_class",
            "message",
            "attempts",
            "died_at",
            "group",
            "owner",
        )
        table(
            columns,
            ([row[c] for c in columns] for row in found),
            right=("id", "attempts"),
            empty="no dead letters",
        )


@dlq.command()
@click.argument("which", metavar="ID|GROUP")
@database_option
@json_option
def show(which: str, database_url: str | None, as_json: bool) -> int:
    """Show one dead letter with its whole history, or one group; secret values of payloads are left
    out.
    """
    is_group = len(which) == FINGERPRINT_LENGTH or not which.isdigit()
    with database(settings_for(database_url)) as conn:
        found = groups.show(conn, which) if is_group else dead_letters.show(conn, int(which))
    if found is None:
        if is_group:
            return group_commands.missing(which)
        click.echo(f"redrive: job {which} has no dead letter", err=True)
        return 2
    if as_json:
        emit(found)
    elif is_group:
        group_commands.print_group(found)
    else:
        _print_one(found)
    return 0


def _print_one(found: dict[str, Any]) -> None:
    import json  # noqa: PLC0415

    def bold(text: str) -> str:
        return click.style(text, bold=True)

    click.echo(
        f"{bold('job ' + str(found['id']))}  {found['kind']}  queue {found['queue']}  {found['state']}"
    )
    click.echo(
        f"died {printable(found['died_at'])}: {found['reason']}, {found['category']}, group {found['group']}"
    )
    click.echo(
        f"{counted(found['attempts'], 'attempt')}, {counted(found['deliveries'], 'delivery', 'deliveries')},"
        f" {counted(found['redrives'], 'redrive')};"
        f" created {printable(found['created_at'])}"
    )
    if found["owner"]:
        click.echo(f"{printable(found['owner'])} looks after it")
    click.echo(
        f"\n{bold('payload')}  {printable(json.dumps(found['payload'], ensure_ascii=False))}"
    )
    click.echo(f"\n{bold('failures')}, oldest first")
    for failure in found["failures"]:
        click.echo(
            f"  attempt {failure['attempt']}  {printable(failure['at'])}  {failure['category']}"
            f"  on {printable(failure['worker'])}"
        )
        click.echo(f"    {printable(failure['error_class'])}: {printable(failure['message'])}")
        if known := [
            f"{name} {failure['detail'][name]}" for name in EVIDENCE if name in failure["detail"]
        ]:
            click.echo(f"      {printable(', '.join(known))}")
        for frame in failure["detail"].get("stack", [])[-3:]:
            click.echo(
                f"      {printable(frame['file'])}:{frame['line']} in {printable(frame['function'])}"
            )
        for cause in failure["detail"].get("causes", []):
            click.echo(
                f"    because {printable(cause['error_class'])}: {printable(cause['message'])}"
            )
    for effect in found["side_effects"]:
        click.echo(
            f"\nside effect, {printable(effect['at'])}: {printable(effect['what'])} {printable(effect['detail'])}"
        )
    if found["blocked"]:
        click.echo(f"\nits last redrive was refused: {found['blocked']}")
    if len(found["lineage"]) > 1:
        click.echo(f"\n{bold('lineage')}")
        for death in found["lineage"]:
            click.echo(
                f"  {printable(death['died_at'])}  {death['reason']}  {death['state']}  {death['outcome'] or ''}"
            )
    for note in found["notes"]:
        click.echo(
            f"\n{bold('note')} of {printable(note['actor'])}, {note['at']}\n  {printable(note['text'])}"
        )


@dlq.command("redrive")
@click.argument("jobs", metavar="[ID]...", nargs=-1, type=click.INT)
@filter_options(ENV)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every open dead letter, when no filter is given.",
    envvar=f"{ENV}_ALL",
)
@click.option("--why", metavar="TEXT", help="Why; the audit log keeps it.", envvar=f"{ENV}_WHY")
@click.option("--actor", metavar="NAME", help="Who. [env: REDRIVE_ACTOR]")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="Spread them out: jobs per second.",
    envvar=f"{ENV}_RATE",
)
@click.option(
    "--max-redrives",
    type=click.IntRange(1),
    default=dead_letters.MAX_REDRIVES,
    show_default=True,
    help="Leave out what was redriven this often already.",
    envvar=f"{ENV}_MAX_REDRIVES",
)
@click.option(
    "--every",
    type=Duration(),
    metavar="DURATION",
    help="How often this is scheduled: an alert speaks up when it stops.",
    envvar=f"{ENV}_EVERY",
)
@click.option("--dry-run", is_flag=True, help="Only show.", envvar=f"{ENV}_DRY_RUN")
@click.option("--yes", is_flag=True, help="Do not ask.", envvar=f"{ENV}_YES")
@database_option
@json_option
def redrive_dead_letters(
    jobs: tuple[int, ...],
    everything: bool,
    why: str | None,
    actor: str | None,
    rate: float | None,
    max_redrives: int,
    every: float | None,
    dry_run: bool,
    yes: bool,
    database_url: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Put dead letters back to work: these ids, or what the filters select.

    \b
    redrive dlq redrive 17 18 --why 'customer fixed the address'
    redrive dlq redrive --kind invoice.charge --since 2h --rate 5 --why 'provider is back'

    Shows what it would do first; then asks, unless --yes. Without a terminal and without --yes it
    only shows. What has succeeded since, or was redriven too often, stays where it is and says so.
    Every option is also an environment variable for Jobs and CronJobs: REDRIVE_REDRIVE_KIND, ...,
    REDRIVE_REDRIVE_YES=true.
    """
    chosen = filter_from(options | {"ids": (*jobs, *options["ids"])}, states=("open",))
    by_id = bool(chosen.ids)
    is_vague = not chosen.narrows() and not everything
    if is_vague and yes:
        msg = "name ids or a filter; for every open dead letter, say --all"
        raise click.UsageError(msg)
    settings = settings_for(database_url, actor=actor)
    acts = not dry_run and not is_vague
    with database(settings) as conn:
        planned = dead_letters.plan(conn, chosen, max_redrives=max_redrives)
        report = dead_letters.Redriven(planned.matched, blocked=planned.blocked)
        if not as_json:
            _print_plan(planned, rate)
        if acts and planned.matched:
            if yes:
                why = require_why(why)
            acts = confirm(
                f"Redrive {counted(planned.matched, 'dead letter')}?", str(planned.matched), yes=yes
            )
            if acts:
                why = require_why(why or click.prompt("Why"))
                report = _redrive(
                    settings, conn, planned, chosen, why, rate, max_redrives, locked=not by_id
                )
        if every is not None and acts:
            dead_letters.done_chore(conn, "redrive", every)
    did = acts and planned.matched
    if as_json:
        emit(
            {
                "matched": report.matched,
                "redriven": report.redriven,
                "blocked": report.blocked,
                "campaign": report.campaign,
            }
        )
    elif did:
        click.echo(
            f"{report.redriven} redriven"
            + _because(report.blocked)
            + f", campaign {report.campaign}"
        )
    elif planned.matched:
        hint = (
            ""
            if dry_run
            else "; name ids or a filter, or say --all"
            if is_vague
            else "; add --yes to do it"
        )
        click.echo("nothing was changed" + hint)
    missing = by_id and not planned.matched
    return 2 if missing else 0


def _redrive(
    settings: Any,
    conn: Any,
    planned: Any,
    chosen: Any,
    why: str,
    rate: float | None,
    max_redrives: int,
    *,
    locked: bool,
) -> dead_letters.Redriven:
    with database(settings) as holder, holder.transaction():
        if locked:
            dead_letters.hold_lock(holder, "redrive")
        with progress("redriven", planned.matched) as advance:
            return dead_letters.redrive(
                conn,
                planned,
                chosen,
                why=why,
                actor=settings.who(),
                rate=rate,
                max_redrives=max_redrives,
                progress=advance,
            )


def _because(blocked: dict[str, int]) -> str:
    return "".join(f", {n} {cause}" for cause, n in sorted(blocked.items()))


def _print_plan(planned: dead_letters.Plan, rate: float | None) -> None:
    if not planned.matched:
        click.echo("nothing matched")
        return
    click.echo(
        f"{counted(planned.matched, 'open dead letter')} in {counted(len(planned.groups), 'group')}"
    )
    columns = ("count", "group", "kind", "error_class", "message")
    table(columns, ([group[c] for c in columns] for group in planned.groups[:10]), right=("count",))
    click.echo("for example: " + ", ".join(str(row["id"]) for row in planned.sample))
    for cause, count in sorted(planned.blocked.items()):
        click.echo(f"{count} will stay: {cause}")
    if planned.acted:
        click.echo(f"{planned.acted} have side effects on record; see dlq show")
    if rate:
        click.echo(f"at {rate:g} per second this takes {math.ceil(planned.matched / rate)} s")


@dlq.command()
@click.argument("jobs", metavar="ID...", nargs=-1, required=True, type=click.INT)
@acting_options
@database_option
@json_option
@click.pass_context
def dismiss(
    ctx: click.Context,
    jobs: tuple[int, ...],
    why: str | None,
    actor: str | None,
    database_url: str | None,
    as_json: bool,
) -> None:
    """Close dead letters that will not be fixed."""
    reason = require_why(why)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        gone = dead_letters.dismiss(conn, jobs, why=reason, actor=settings.who())
    if as_json:
        emit({"dismissed": gone})
    else:
        click.echo(f"{len(gone)} dismissed")
    ctx.exit(_missed(jobs, gone))


@dlq.command()
@click.argument("jobs", metavar="ID...", nargs=-1, required=True, type=click.INT)
@click.option("--owner", metavar="NAME", required=True, help="Who looks after them; '' = nobody.")
@acting_options
@database_option
@json_option
@click.pass_context
def assign(
    ctx: click.Context,
    jobs: tuple[int, ...],
    owner: str,
    why: str | None,
    actor: str | None,
    database_url: str | None,
    as_json: bool,
) -> None:
    """Say who looks after dead letters."""
    reason = require_why(why)
    owner = owner.strip()
    if len(owner) > NAME_LENGTH:
        msg = f"--owner: at most {NAME_LENGTH} characters"
        raise click.UsageError(msg)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        assigned = dead_letters.assign(conn, jobs, owner, why=reason, actor=settings.who())
    if as_json:
        emit({"assigned": assigned, "owner": owner or None})
    else:
        click.echo(f"{len(assigned)} assigned to {owner or 'nobody'}")
    ctx.exit(_missed(jobs, assigned))


def _missed(asked: tuple[int, ...], done: list[int]) -> int:
    """Name the jobs that were not open. Returns the exit code."""
    for job in sorted(set(asked) - set(done)):
        click.echo(f"redrive: job {job} has no open dead letter", err=True)
    return 0 if done else 2


@dlq.command()
@click.argument("job", metavar="ID", type=click.INT)
@click.argument("text")
@click.option("--actor", metavar="NAME", help="Who. [env: REDRIVE_ACTOR]")
@database_option
@click.pass_context
def note(
    ctx: click.Context, job: int, text: str, actor: str | None, database_url: str | None
) -> None:
    """Write down what you found out, for the next one who looks."""
    if not text.strip():
        msg = "the note is empty"
        raise click.UsageError(msg)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        if not dead_letters.note(conn, job, text.strip()[:2000], actor=settings.who()):
            click.echo(f"redrive: job {job} has no dead letter", err=True)
            ctx.exit(2)
    click.echo("noted")
