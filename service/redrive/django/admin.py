"""A link from the admin to Redrive's console, for whoever has the permission redrive.view_console.

The settings say where that is: REDRIVE_CONSOLE_URL. Who may do what there, the console says.
"""

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect

from redrive.django.models import Console

URL: str | None = getattr(settings, "REDRIVE_CONSOLE_URL", None)


class ConsoleAdmin(admin.ModelAdmin):  # pyright: ignore[reportMissingTypeArgument] # of the stubs
    """Leads away instead of listing rows."""

    def changelist_view(self, request: Any, *_: Any, **__: Any) -> HttpResponseRedirect:
        """Go to the console."""
        if not self.has_view_permission(request):  # pyright: ignore[reportUnknownMemberType] # of no rows
            raise PermissionDenied
        return HttpResponseRedirect(str(URL))

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002 # of the interface
        """There is nothing to add."""
        return False


if URL:
    admin.site.register(Console, ConsoleAdmin)
