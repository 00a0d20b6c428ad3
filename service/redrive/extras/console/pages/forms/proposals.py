"""Page of what agents propose, with the changes that start or reject it."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from redrive.extras.console.state import SignedIn
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.verbs import PATH
from redrive.verbs.query import command

router = APIRouter(default_response_class=HTMLResponse, include_in_schema=False)


@router.get(PATH)
def list_proposals(visit: SignedIn) -> Response:
    """List the open proposals, newest first."""
    with visit.reading() as conn:
        found = proposals.find(conn)
    rows = [row | {"what": proposals.what(row)} for row in found]
    return visit.page("proposals.html", rows=rows, shell=command(("proposal", "ls")))
