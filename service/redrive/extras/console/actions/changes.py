"""All changes of the console: its verbs, and answers to what agents propose."""

from collections.abc import Mapping

from redrive.extras.proposals.verbs import PROPOSALS
from redrive.verbs.registry import VERBS
from redrive.verbs.verb import Verb

CHANGES: Mapping[str, Verb] = {
    word: verb for word, verb in {**VERBS, **PROPOSALS}.items() if not verb.is_for_shell
}
"""Word in the address -> change."""
