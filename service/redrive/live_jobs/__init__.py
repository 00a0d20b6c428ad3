"""Jobs that live: list them, show one, say why it waits, stop it, push it."""
