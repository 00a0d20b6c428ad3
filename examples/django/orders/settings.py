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
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "redrive.django",  # Redrive
    "orders",
]
REDRIVE_CONSOLE_URL = (
    "https://redrive.internal"  # Redrive: a link in the admin; may be left out
)

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
ROOT_URLCONF = "orders.urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "of an example")
STATIC_URL = "static/"
