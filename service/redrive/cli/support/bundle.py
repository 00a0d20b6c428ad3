"""Bundle of a dead letter, from which its last attempt can be replayed."""

from typing import TYPE_CHECKING

from redrive.cli.support.connection import database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.output import no_letter, shown_id
from redrive.jobs.export import export
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.cli.support.options import Reveal
    from redrive.settings import Settings


def read_bundle_of(job: int, reveal: "Reveal | None", settings: "Settings") -> Row:
    """Read the bundle of a dead letter. With `reveal`, ask for consent first.

    Args:
        reveal: request to see the secrets; None = they are redacted.

    Raises:
        NotFound: the job has no dead letter.
    """
    if reveal is not None:
        reveal.agree(settings, shown_id(job))

    with database(settings) as conn:
        why = reveal and reveal.why
        bundle = export(conn, job, actor=settings.who(), why=why)

    if bundle is None:
        raise NotFound(no_letter(job))

    return bundle
