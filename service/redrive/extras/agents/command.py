"""redrive mcp."""

import os
import signal
from typing import TYPE_CHECKING

import click

from redrive.cli.support.options import actor_option, settings_options
from redrive.errors import SettingsError
from redrive.observability.logs import set_up

if TYPE_CHECKING:
    from redrive.extras.console.security.access import Access
    from redrive.settings import Settings

NO_SIGN_IN = (
    "nobody could sign in over HTTP: set REDRIVE_CONSOLE_TOKENS, or REDRIVE_CONSOLE_PROXIES with"
    " REDRIVE_CONSOLE_GROUPS"
)


@click.command()
@click.option(
    "--http",
    "over_http",
    is_flag=True,
    help="Serve HTTP instead of standard input and output.",
)
@click.option(
    "--port",
    "mcp_port",
    type=click.INT,
    help="Port to serve HTTP on. [env: REDRIVE_MCP_PORT; default: 9810]",
)
@actor_option
@settings_options("actor", "mcp_port")
def mcp(over_http: bool, settings: "Settings") -> None:
    """Let agents look at dead letters and propose changes, by MCP.

    \b
    claude mcp add redrive -- redrive mcp

    Agents see redacted data, and can start, change or reveal nothing. A person starts
    what they propose: redrive proposal ls. The audit log has each call. Over HTTP, each
    request needs a token of the console. docs/agents.md says which database login to
    use.
    """
    set_up(settings.log_format, settings.log_level)
    from redrive.extras.agents import server  # noqa: PLC0415 # an extra
    from redrive.extras.agents.desk import Budget, Desk  # noqa: PLC0415 # as above
    from redrive.observability.health import listen  # noqa: PLC0415 # a web server

    budget = Budget(settings.mcp_calls_per_hour, settings.mcp_proposals_per_hour)
    desk = Desk(settings.address(), budget)
    access = _access(settings) if over_http else None

    with desk.connected():
        pass  # a wrong login is an error now, and not at the first call

    if access is None:
        import anyio  # noqa: PLC0415 # an extra

        # The SDK waits for its thread, which reads standard input and cannot be stopped.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os._exit(128 + number))

        anyio.run(server.serve_stdio, desk, settings.who())
        return

    listener = listen(settings.mcp_port, "REDRIVE_MCP_PORT")
    port = listener.getsockname()[1]
    click.echo(f"the MCP server is at http://127.0.0.1:{port}/mcp", err=True)
    server.serve_http(desk, access, listener)


def _access(settings: "Settings") -> "Access":
    """Return the console's ways to sign in that programs can use.

    Raises:
        SettingsError: nobody could sign in.
    """
    from redrive.extras.console.security import access, ways_in  # noqa: PLC0415 # an extra

    groups = access.group_roles(settings.console_groups or "")
    proxy = ways_in.proxy_of(settings)
    tokens = access.tokens_of(settings.console_tokens)
    if tokens is None and proxy is None:
        raise SettingsError(NO_SIGN_IN)

    if tokens is not None:
        # Refuse a wrong file at the start, and not at the first request.
        tokens.read()

    return access.Access(tokens=tokens, proxy=proxy, groups=groups)
