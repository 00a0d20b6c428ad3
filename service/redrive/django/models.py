"""A model without a table: the admin's entry and permission for Redrive's console."""

from django.db import models


class Console(models.Model):
    """The console, as the admin and its permissions see it."""

    class Meta:
        """The model has no table."""

        managed = False
        default_permissions = ("view",)
        verbose_name = "console"
        verbose_name_plural = "console"

    def __str__(self) -> str:
        return "console"
