"""Several databases in one console: one per address, and an overview of all."""

from collections.abc import Collection
from functools import partial

import psycopg
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from redrive.database.ask import ask_all
from redrive.errors import SchemaError, SettingsError
from redrive.extras.console.security import sessions
from redrive.extras.console.security.access import Principal
from redrive.extras.console.security.guard import App, Receive, Scope, Send
from redrive.extras.console.state import PREFIX, Console, Here, Known, console, consoles
from redrive.overview import figures
from redrive.rules.rows import Row
from redrive.verbs.query import command
from redrive.verbs.refusal import Missing, Refused

PATIENCE_SECONDS = 3.0
SILENT = "The database does not answer."
SUMS = ("dead", "ready", "scheduled", "retrying", "running")

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


def addressed(app: App, cells: Collection[str]) -> App:
    """Serve each cell under /cells/NAME, and the overview of all cells under /."""
    if "" in cells:
        return app

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # Change the scope in place: the guard reads it after the response.
        scope |= _place(str(scope.get("path", "")), cells)
        await app(scope, receive, send)

    return answer


def _place(path: str, cells: Collection[str]) -> Scope:
    """Return the parts of the scope that tell which cell a path names."""
    if path == "/":
        return {"path": "/cells"}

    name, _, _ = path.removeprefix(PREFIX).partition("/")
    root = f"{PREFIX}{name}"
    if name not in cells or not path.startswith(root):
        return {}

    return {
        "root_path": root,
        "cell": name,
        "path": f"{root}/" if path == root else path,
    }


@router.get("/cells")
def list_cells(request: Request, here: Here, user: Known) -> Response:
    """Show all cells and what is wrong in each."""
    if not here.cells:
        return RedirectResponse("/", 303)

    summaries = rows(request, user)
    shell = command(("queue", "ls"))

    return here.page("cells.html", request, user, rows=summaries, shell=shell)


@router.get(PREFIX + "{name}/{path:path}")
def refuse_unknown(here: Here, user: Known, name: str) -> Response:
    """Refuse an unknown cell and list the known ones."""
    # The parameter only requires a sign-in, because the answer names the cells.
    del user
    known = ", ".join(here.cells) or "there is one database"
    raise Missing(f"there is no cell {name!r}; there are: {known}")


def rows(request: Request, user: Principal) -> list[Row]:
    """Return a summary of each cell within a bounded time.

    The summary of a cell that does not answer says so.
    """
    every = consoles(request)
    names = console(request).cells

    asked = {name: partial(_row, every[name], user) for name in names}
    answers = ask_all(asked, PATIENCE_SECONDS)
    silent = _without_figures(SILENT)

    return [{"cell": name, **answers.get(name, silent)} for name in names]


def _without_figures(fault: str) -> Row:
    sums = dict.fromkeys(SUMS)
    return {"fault": fault, "troubles": [], "alive": None, "added": [], **sums}


def _row(here: Console, user: Principal) -> Row:
    role = user.role
    if role not in here.logins.roles:
        return _without_figures(f"Your role, {role.word}, has no login there.")

    try:
        with here.logins.reading(role, user.actor) as conn:
            # Each database records sign-outs by itself.
            if sessions.is_ended(conn, user.session):
                return _without_figures("You signed out.")

            now = figures.now(conn)
    except (SchemaError, SettingsError, Refused) as error:
        return _without_figures(f"{error}.")
    except psycopg.Error:
        return _without_figures(SILENT)

    return _summary(now)


def _summary(now: Row) -> Row:
    queues = now["queues"]
    sums = {name: sum(queue[name] for queue in queues) for name in SUMS}

    return {
        "fault": None,
        "troubles": now["troubles"],
        "alive": now["alive"],
        "added": now["added"],
        **sums,
    }
