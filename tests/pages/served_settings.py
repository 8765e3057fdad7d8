"""Settings of a site served by a process of its own over the test database of this run."""

from __future__ import annotations

import os

from tests.settings import *  # noqa: F403  # this module is those settings

DATABASES["default"]["NAME"] = os.environ["SITE_DATABASE"]  # noqa: F405
