"""No table of Django's: what stands in the admin for Redrive's console, and who may see it."""

from django.db import models


class Console(models.Model):
    """The console, as the admin and its permissions know it."""

    class Meta:
        """The model has no table."""

        managed = False
        default_permissions = ("view",)
        verbose_name = "console"
        verbose_name_plural = "console"

    def __str__(self) -> str:
        return "console"
