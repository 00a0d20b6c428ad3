"""What is kept."""

from django.db import models


class Order(models.Model):
    """An order, and whether its customer was told that it is here."""

    customer = models.EmailField()
    confirmed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"
