"""What the admin and its permissions know of Redrive. It makes no table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """As `makemigrations` makes it."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Console",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
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
