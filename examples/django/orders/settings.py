"""The settings; what Redrive needs of them is marked."""

import os

from psycopg.conninfo import conninfo_to_dict

database = conninfo_to_dict(os.environ["DATABASE_URL"])

DATABASES = {
    "default": {  # Redrive: the jobs are in the same database
        "ENGINE": "django.db.backends.postgresql",
        "NAME": database.get("dbname"),
        "USER": database.get("user"),
        "PASSWORD": database.get("password"),
        "HOST": database.get("host"),
        "PORT": database.get("port"),
    }
}
INSTALLED_APPS = [
    "redrive.django",  # Redrive
    "orders",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
ROOT_URLCONF = "orders.urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "of an example")
