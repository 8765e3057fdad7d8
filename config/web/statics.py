"""Static files as browsers keep them: named by their content, compressed once, kept for good."""

from __future__ import annotations

import fcntl

from django.conf import settings
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage, staticfiles_storage
from django.core.management import call_command


def gather_static_files() -> None:
    """Bring every static file under its hashed name into STATIC_ROOT, beside a `.gz` of it.

    It is done by each process before it serves, so that no step of an installation can be
    forgotten; what is there already costs a tenth of a second. Files of earlier versions stay:
    a page that was loaded from them goes on working.
    """
    if settings.DEBUG or not isinstance(staticfiles_storage, ManifestStaticFilesStorage):
        return
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
    with (settings.STATIC_ROOT.parent / "static.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may start on one data directory
        call_command("collectstatic", interactive=False, verbosity=0)
    # What it read of the manifest before there was one.
    files, staticfiles_storage.manifest_hash = staticfiles_storage.load_manifest()
    staticfiles_storage.hashed_files = files  # type: ignore[assignment]  # the stubs say str
