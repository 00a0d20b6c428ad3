"""The console: pages and a JSON API over what the command line can do. It has no power of its own.

A request goes through `guard` (sizes, rates, headers), `access` (who it is, in which role) and
`logins` (the role's own connections) to a page or a change. Changes are in `changes`, with one
preview and one way to do each, whoever asks.
"""
