"""Commands of `redrive dlq` about the failing jobs of a group."""

import click

from redrive.cli.support.verbs import Asked, verb_options
from redrive.verbs.failing import FAILING


@click.command()
@verb_options(FAILING["retry"])
def retry(asked: Asked) -> int:
    """Retry the failing jobs of a group now, a few first.

    \b
    redrive dlq retry 3f9a --why 'the provider is back'
    redrive dlq retry 3f9a --rate 10 --why 'the provider is back'

    It is a campaign: three canaries go first, and it stops if too many fail again. To
    watch it: redrive campaign watch.
    """
    return asked.perform()


@click.command()
@verb_options(FAILING["hold"])
def hold(asked: Asked) -> int:
    """Let the failing jobs of a group wait.

    \b
    redrive dlq hold 3f9a --why 'the provider is down until Monday'

    Jobs that fail for this cause later wait, too. They spend no attempt until you
    release the group. If the group is resolved in a version, they are tried when all
    workers run it.
    """
    return asked.perform()


@click.command()
@verb_options(FAILING["release"])
def release(asked: Asked) -> int:
    """Let the held jobs of a group run again.

    \b
    redrive dlq release 3f9a --why 'the provider is back'

    They are retried within half an hour. To try a few first: redrive dlq retry.
    """
    return asked.perform()


@click.command("give-up")
@verb_options(FAILING["give-up"])
def give_up(asked: Asked) -> int:
    """Turn the failing jobs of a group into dead letters.

    \b
    redrive dlq give-up 3f9a --why 'the customer has left'

    They are not retried any longer. You can redrive them later.
    """
    return asked.perform()
