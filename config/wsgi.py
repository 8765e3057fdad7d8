"""HTTP: pages and the API."""

from __future__ import annotations

import os

import django
from django.core.wsgi import get_wsgi_application

from config.web.statics import gather_static_files

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()
gather_static_files()  # before the middleware looks which files there are
application = get_wsgi_application()
