"""redrive worker."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from redrive.cli.operations.workers import list_workers
from redrive.cli.support.child import in_child
from redrive.cli.support.connection import wait_for_schema
from redrive.cli.support.exits import Exit
from redrive.cli.support.misplaced import refuse_before_subcommand
from redrive.cli.support.options import database_option, port_option, settings_for
from redrive.encryption import configured
from redrive.errors import SettingsError
from redrive.observability import process
from redrive.observability.health import serve
from redrive.observability.logs import set_up
from redrive.observability.metrics import Exposition, Metrics, exchange_figures
from redrive.observability.stats import DatabaseStats
from redrive.observability.tracing import is_asked_for
from redrive.observability.tracing import set_up as set_up_tracing
from redrive.worker.options import WorkerOptions
from redrive.worker.supervisor import Checks, Supervisor
from redrive.worker.telemetry import Telemetry

if TYPE_CHECKING:
    from redrive.settings import Settings

Figures = Callable[[], Iterable[Any]]
"""Source of metrics."""


class _Worker(click.Group):
    """Group that says how to name handlers, if it gets them as a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        if args[0] not in self.commands and ":" in args[0]:
            ctx.fail(f"To run these handlers: redrive worker --handlers {args[0]}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Worker, invoke_without_command=True)
@database_option
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Registry of the handlers. [env: REDRIVE_HANDLERS]",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Claim jobs of this queue only. You can give more than one.",
)
@click.option(
    "--slots",
    type=click.INT,
    help="Jobs that a runner runs at once. [env: REDRIVE_SLOTS; default: 16]",
)
@click.option(
    "--runners",
    type=click.INT,
    help="Runner processes. [env: REDRIVE_RUNNERS; default: 1]",
)
@port_option
@click.option(
    "--until-empty",
    is_flag=True,
    help="Stop when no job is ready, due within a minute, or running.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: restart the runners when the code of the handlers changes.",
)
@click.pass_context
def worker(
    context: click.Context,
    database_url: str | None,
    queues: tuple[str, ...],
    until_empty: bool,
    reload: bool,
    **flags: object,
) -> int:
    """Claim jobs and run their handlers, until SIGTERM.

    \b
    redrive worker --handlers app.jobs:jobs --queue mail --slots 32

    After SIGTERM or Ctrl-C, the worker claims no more jobs. Running jobs may end within
    REDRIVE_DRAIN_TIMEOUT. Other jobs are given back without charging an attempt. A
    second signal gives all of them back at once.
    """
    if context.invoked_subcommand is not None:
        refuse_before_subcommand(context)
        return Exit.DONE  # not used: the subcommand sets the exit code

    # Named here, because the child that reads the settings has another process id.
    name = f"{socket.gethostname()}/{os.getpid()}"

    def read() -> Start:
        chosen = None
        if queues:
            chosen = ",".join(queues)

        settings = settings_for(database_url, queues=chosen, **flags)
        return start_of(settings, name, until_empty=until_empty, reload=reload)

    return run(in_child(read))


worker.add_command(list_workers)


@dataclass(frozen=True, slots=True)
class Start:
    """Start-up values of a worker.

    They are its settings, without the libraries that read them.
    """

    options: WorkerOptions
    log_format: Literal["json", "console"] | None
    log_level: str
    http_port: int
    database_metrics: bool
    startup_timeout: float
    disk_budget: int


def start_of(
    settings: "Settings", name: str, *, until_empty: bool, reload: bool
) -> Start:
    """Return the start-up values of a worker with these settings.

    Args:
        name: name of the worker in lists and logs.
        until_empty: the worker stops when no job is left for it.
        reload: its runners restart when the code of the handlers changes.

    Raises:
        SettingsError: no handlers and no targets are set, or the keys are wrong.
    """
    if settings.handlers is None and settings.targets is None:
        msg = (
            "REDRIVE_HANDLERS is not set; it must be module:attribute, such as app.jobs:jobs"
            " (or set REDRIVE_TARGETS)"
        )
        raise SettingsError(msg)

    configured()  # refuse bad keys once, not in each runner
    return Start(
        options=_options(settings, name, until_empty=until_empty, reload=reload),
        log_format=settings.log_format,
        log_level=settings.log_level,
        http_port=settings.http_port,
        database_metrics=settings.database_metrics,
        startup_timeout=settings.startup_timeout,
        disk_budget=settings.disk_budget_gib << 30,
    )


def run(
    start: Start,
    figures: Sequence[Figures] = (),
    also_ready: Callable[[], Checks] = dict,
    begin: Callable[[], None] = lambda: None,
) -> int:
    """Work until told to stop, with metrics, probes and traces as configured.

    Args:
        figures: more sources of metrics.
        also_ready: more checks of readiness.
        begin: called when the schema is there.
    """
    options = start.options
    set_up(start.log_format, start.log_level)
    wait_for_schema(options.database, start.startup_timeout)

    metrics = Metrics()
    tracing = set_up_tracing() if is_asked_for() else None
    supervisor = Supervisor(options, Telemetry(metrics, options.queues, tracing))
    if start.http_port:
        _serve(start, metrics, supervisor, figures, also_ready)

    begin()
    status = supervisor.run()
    if tracing is not None:
        tracing.shut_down()

    sys.stdout.flush()
    return status


def _serve(
    start: Start,
    metrics: Metrics,
    supervisor: Supervisor,
    figures: Sequence[Figures],
    also_ready: Callable[[], Checks],
) -> None:
    """Serve probes and scrapes from separate threads."""
    sources = [
        process.of_runners(supervisor.runners.memory),
        exchange_figures(
            lambda: supervisor.database.exchange_age(time.monotonic()),
            supervisor.database.slowness.factor,
        ),
    ]
    if start.database_metrics:
        sources.append(DatabaseStats(start.options.database, start.disk_budget).collect)

    exposition = Exposition(metrics, *sources, *figures)
    serve(
        start.http_port,
        exposition.registry,
        live=lambda: supervisor.live(time.monotonic()),
        ready=lambda: supervisor.ready(time.monotonic()) | also_ready(),
    )


def _options(
    settings: "Settings", name: str, *, until_empty: bool, reload: bool
) -> WorkerOptions:
    known = {
        "pod": socket.gethostname(),
        "node": settings.node,
        "environment": settings.environment,
        "version": settings.version,
    }
    return WorkerOptions(
        database=settings.address(),
        handlers=settings.handlers or "",
        targets=str(settings.targets or ""),
        name=name,
        version=settings.version or "",
        queues=settings.queue_names(),
        slots=settings.slots,
        runners=settings.runners,
        ttl=settings.heartbeat_ttl,
        drain=settings.drain_timeout,
        until_empty=until_empty,
        reload=reload,
        memory_limit=settings.runner_memory_mib << 20,
        where={name: value for name, value in known.items() if value},
        environment=settings.runner_env_names(),
        samples=settings.success_samples,
        source_lines=settings.source_lines,
        listen=settings.listen_address(),
    )
