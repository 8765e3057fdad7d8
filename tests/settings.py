"""The product's settings, with what would slow tests down or touch a developer's data changed."""

from __future__ import annotations

import os

# Before the product's settings read it: tests have a data directory and server of their own.
os.environ.setdefault("OFFPEAK_HOME", "var/test")
os.environ.setdefault("OFFPEAK_KERNELS", "var/test/kernels")

from config.database.roles import OWNER
from config.settings import *  # noqa: F403  # this module is those settings

os.umask(0o022)
"""As on most machines: the product's own is closed, and what tests make is not the product's."""

if "embedded_home" in DATABASES["default"]["OPTIONS"]:  # noqa: F405
    DATABASES["default"]["USER"] = OWNER  # noqa: F405
    """Who serves could not make a database for tests, and not empty the record after each."""

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
"""Hashing is made to be slow; log-ins in tests need not be."""

DATABASES["default"]["OPTIONS"].setdefault("options", "-c synchronous_commit=off")  # noqa: F405
"""What tests commit need not outlive a power cut: nobody waits for the disk."""

STORAGES = {
    **STORAGES,  # noqa: F405
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True
"""Tests serve the files as they are; tests of what browsers keep gather them."""

STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405  # whitenoise warns where it is absent
