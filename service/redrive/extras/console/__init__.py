"""The console: pages and a JSON API for what the command line can do, and nothing more.

`security.guard` checks size, rate and headers of a request. `security.access`
identifies the user, and `security.logins` opens a connection of the user's role. Then a
route in `pages` answers. Forms and the JSON API make changes through the registry in
`actions.changes`.
"""
