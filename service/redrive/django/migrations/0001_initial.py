"""Models for the admin and its permissions. This migration creates no table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Migration as `makemigrations` writes it."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Console",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                )
            ],
            options={
                "managed": False,
                "default_permissions": ("view",),
                "verbose_name": "console",
                "verbose_name_plural": "console",
            },
        ),
    )
