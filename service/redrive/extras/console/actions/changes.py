"""All changes of the console: the verbs, and answers to what agents propose."""

from collections.abc import Mapping

from redrive.extras.proposals.verbs import PROPOSALS
from redrive.verbs.registry import VERBS
from redrive.verbs.verb import Verb

CHANGES: Mapping[str, Verb] = {**VERBS, **PROPOSALS}
"""Word in the address -> change."""
