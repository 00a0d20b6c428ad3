"""All changes that a person can make, by their words.

Pages, the JSON API and the command line offer them. Each has a preview, which counts and
writes nothing, and one way to make it.
"""

from collections.abc import Mapping

from redrive.verbs.breakers import BREAKERS
from redrive.verbs.campaigns import CAMPAIGNS
from redrive.verbs.declared import DECLARED
from redrive.verbs.edits import EDITS
from redrive.verbs.failing import FAILING
from redrive.verbs.groups import GROUPS
from redrive.verbs.jobs import JOBS
from redrive.verbs.letters import LETTERS
from redrive.verbs.limits import LIMITS
from redrive.verbs.queues import QUEUES
from redrive.verbs.redrives import REDRIVE
from redrive.verbs.schedules import SCHEDULES
from redrive.verbs.verb import Verb

VERBS: Mapping[str, Verb] = {
    **REDRIVE,
    **CAMPAIGNS,
    **LETTERS,
    **EDITS,
    **JOBS,
    **QUEUES,
    **BREAKERS,
    **GROUPS,
    **FAILING,
    **LIMITS,
    **SCHEDULES,
    **DECLARED,
}
"""Word in the address -> change."""
