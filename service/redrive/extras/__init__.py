"""Parts beside the core: each folder has a command or a service of its own.

Nothing of the core imports from here. Commands are found by the entry points
`redrive.commands`, and parts of core commands by `redrive.parts`.
"""
