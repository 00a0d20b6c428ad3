"""Who may enter the console, and how: sign-in, sessions, guards."""
