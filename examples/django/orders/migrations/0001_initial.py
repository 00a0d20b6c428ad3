"""As `manage.py makemigrations` made it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The orders."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("customer", models.EmailField(max_length=254)),
                ("confirmed", models.BooleanField(default=False)),
            ],
        )
    ]
