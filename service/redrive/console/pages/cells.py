"""Several databases in one console: choose one by the address; show an overview of
all.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.console.pages import figures
from redrive.console.query import command
from redrive.console.security import sessions
from redrive.console.security.access import Principal, Refused
from redrive.console.security.guard import App, Receive, Scope, Send
from redrive.console.security.logins import Crowded
from redrive.console.state import PREFIX, Console, Here, Known, console
from redrive.database.ask import ask_all
from redrive.errors import SchemaError, SettingsError

PATIENCE_SECONDS = 3.0
SILENT = "The database does not answer."
SUMS = ("dead", "ready", "scheduled", "retrying", "running")

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


def addressed(app: App, cells: Collection[str]) -> App:
    """Serve each cell under /cells/NAME, and the overview of all cells under /."""
    if len(cells) == 1:
        return app

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        name, _, _ = path.removeprefix(PREFIX).partition("/")
        root = f"{PREFIX}{name}"
        if path == "/":
            scope["path"] = "/cells"
        elif path.startswith(root) and name in cells:
            scope |= {
                "root_path": root,
                "cell": name,
                "path": path if path != root else f"{root}/",
            }
        await app(scope, receive, send)

    return answer


@router.get("/cells")
def list_cells(request: Request, here: Here, who: Known) -> Response:
    """Show all cells and what is wrong in each."""
    if not here.cells:
        return RedirectResponse("/", 303)
    shell = command(("queue", "ls"))
    return here.page("cells.html", request, who, rows=rows(request, who), shell=shell)


@router.get(PREFIX + "{name}/{path:path}")
def refuse_unknown(here: Here, who: Known, name: str) -> Response:
    """Refuse an unknown cell and list the known ones."""
    del who
    known = ", ".join(here.cells) or "there is one database"
    raise Refused(404, f"there is no cell {name!r}; there are: {known}")


def rows(request: Request, who: Principal) -> list[dict[str, Any]]:
    """Return a summary row for each cell; a cell that does not answer says so within a
    bounded time.
    """
    consoles: Mapping[str, Console] = request.app.state.consoles
    cells = console(request).cells
    asked = {cell: partial(_row, consoles[cell], who) for cell in cells}
    answers = ask_all(asked, PATIENCE_SECONDS)
    return [{"cell": cell, **answers.get(cell, _silent(SILENT))} for cell in cells]


def _silent(fault: str) -> dict[str, Any]:
    return {
        "fault": fault,
        "troubles": [],
        "alive": None,
        "added": [],
        **dict.fromkeys(SUMS),
    }


def _row(here: Console, who: Principal) -> dict[str, Any]:
    if who.role not in here.logins.roles:
        return _silent(f"Your role, {who.role.word}, has no login there.")
    try:
        with here.logins.reading(who.role) as conn:
            if sessions.is_ended(conn, who.session):
                return _silent("You signed out.")
            now = figures.now(conn)
    except (SchemaError, SettingsError) as error:
        return _silent(f"{error}.")
    except (psycopg.Error, Crowded):
        return _silent(SILENT)
    return {
        "fault": None,
        "troubles": now["troubles"],
        "alive": len(now["alive"]),
        "added": now["added"],
        **{name: sum(queue[name] for queue in now["queues"]) for name in SUMS},
    }
