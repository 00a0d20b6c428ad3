"""A link from the admin to Redrive's console, for users who have redrive.view_console.

The setting REDRIVE_CONSOLE_URL has the console's address. The console itself checks the
rights of its users.
"""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect

from redrive.django.models import Console

URL: str | None = getattr(settings, "REDRIVE_CONSOLE_URL", None)


class ConsoleAdmin(admin.ModelAdmin):  # pyright: ignore[reportMissingTypeArgument] # only in stubs
    """Admin page that redirects to the console and lists no rows."""

    def changelist_view(self, request: Any, *_: Any, **__: Any) -> HttpResponseRedirect:
        """Redirect to the console."""
        if not self.has_view_permission(request):  # pyright: ignore[reportUnknownMemberType] # no row type
            raise PermissionDenied
        return HttpResponseRedirect(str(URL))

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 # Django's interface
        """Return False, because the console has no rows to add."""
        return False


if URL:
    admin.site.register(Console, ConsoleAdmin)
