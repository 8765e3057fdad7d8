"""The images of leased work: looked for by digest, fetched beside the tick, checked, bounded.

An image comes from a folder of the host's owner (`dir:` folders, OCI layouts, OCI archives), or
from a registry that the owner named: nothing that a consumer names is asked otherwise, for the
agent stands in the owner's own network. It starts by what it is on this host then, never by what
a registry says at that moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..shares import is_mps
from .containing import reason_of
from .family import descendants
from .limits import Limits
from .podman import IdRanges, Podman, refused_variables, unfit_names
from .port import Coming, NotYet, StartFailed, WorkSpec
from .shelf import ALL_BYTES_MAX, Shelf

FETCH_SECONDS_MAX = 3_600
LOOK_SECONDS = 0.2
INDEX_BYTES_MAX = 4 << 20
FOLDER_ENTRIES_MAX = 1_000
BYTES_MAX = 64 << 30
OUBLOCK_BYTES = 512
NAMED = re.compile(r"(?P<name>[^@\s]+)@(?P<digest>sha256:[0-9a-f]{64})")
FORMAT = "{{.Id}} {{json .Config.Env}}"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

REASONS = (
    ("signature was required", "it is not signed, and this host takes signed images only"),
    ("no signature exists", "it is not signed, and this host takes signed images only"),
    ("invalid gpg signature", "it is not signed by a key that this host's owner trusts"),
    ("no public key", "it is not signed by a key that this host's owner trusts"),
    ("is not accepted", "its signature is for another image or by another key"),
    ("rejected by policy", "this host's owner takes no image from there"),
    ("digest did not match", "it is not what its digest says"),
    ("digest mismatch", "it is not what its digest says"),
    ("does not match", "it is not what its digest says"),
    ("manifest unknown", "its registry has no image with this digest"),
    ("name unknown", "its registry has no image of this name"),
    ("unauthorized", "its registry asks who we are"),
    ("authentication required", "its registry asks who we are"),
    ("connection refused", "its registry cannot be reached"),
    ("no such host", "its registry cannot be reached"),
    ("i/o timeout", "its registry cannot be reached"),
    ("no space left", "the host's disk is full"),
)
"""What is told to the consumer, by what podman says."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that lies ready on this host. path: where it has its programs."""

    image_id: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where images may come from, and what must be true of them.

    folder: of the owner's, with images in it. registries: hosts that may be asked. policy: a
    signature policy (containers-policy.json(5)); None: the digest is enough. bytes_max: written
    to disk to have one. all_bytes_max: of all that are kept.
    """

    folder: Path | None = None
    registries: tuple[str, ...] = ()
    policy: Path | None = None
    bytes_max: int = BYTES_MAX
    all_bytes_max: int = ALL_BYTES_MAX


class Images:
    """Fetches images, one thread for each that is asked for and not answered yet."""

    def __init__(self, podman: Podman, sources: Sources) -> None:
        self._podman = podman
        self._sources = sources
        self._shelf = Shelf(podman, sources.all_bytes_max)
        self._lock = threading.Lock()
        self._fetching: set[str] = set()
        self._found: dict[str, Image | str] = {}

    def ready(self, named: str) -> Image:
        """Return the image that a bid names, once it lies here.

        Raises: NotYet while it is looked for; StartFailed with why it cannot be had.
        """
        with self._lock:
            found = self._found.pop(named, None)
            if found is None and named not in self._fetching:
                self._fetching.add(named)
                threading.Thread(
                    target=self._fetch, args=[named], name="image", daemon=True
                ).start()
        match found:
            case Image():
                return found
            case str():
                raise StartFailed(f"the image {named} cannot be run: {found}")
        raise Coming("its image is fetched")

    def _fetch(self, named: str) -> None:
        try:
            found: Image | str = self._bring(named)
        except _Refused as refused:
            found = str(refused)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            found = f"podman does not do its part: {error}"
        with self._lock:
            self._found[named] = found
            self._fetching.discard(named)

    def _bring(self, named: str) -> Image:
        form = NAMED.fullmatch(named)
        if form is None:
            raise _Refused("it is not named by its digest")
        kept = self._kept_name(form["digest"])
        image = self._inspect(kept)
        if pulled := image is None:
            if self._shelf.is_full():
                self._shelf.tidy()
            image_id = self._pull(self._source(named, form["name"], form["digest"]))
            done = self._podman.call("tag", image_id, kept)
            image = self._inspect(kept) if done.returncode == 0 else None
            if image is None:
                raise _Refused(reason_of(done.stderr.encode(), "it was removed meanwhile"))
        self._shelf.use(image.image_id)
        if pulled:
            self._shelf.tidy()
        return image

    def _kept_name(self, digest: str) -> str:
        """Return the name of an image once it was checked by the policy as it is now."""
        policy = self._sources.policy
        text = b"" if policy is None else policy.read_bytes()
        return f"localhost/offpeak/{hashlib.sha256(text).hexdigest()[:16]}:{digest[7:]}"

    def _inspect(self, name: str) -> Image | None:
        done = self._podman.call("image", "inspect", "--format", FORMAT, name)
        if done.returncode:
            return None
        image_id, _, text = done.stdout.partition(" ")
        variables = dict(each.partition("=")[::2] for each in json.loads(text) or ())
        return Image(image_id, variables.get("PATH") or DEFAULT_PATH)

    def _source(self, named: str, name: str, digest: str) -> str:
        """Return from where podman is to pull an image."""
        folder, registries = self._sources.folder, self._sources.registries
        if folder is not None and (found := found_in(folder, digest)) is not None:
            return found
        host = name.partition("/")[0]
        if "/" in name and host in registries:
            return f"docker://{named}"
        asked = f", and {host} is none of the registries that it asks" if "/" in name else ""
        raise _Refused(f"this host has no image with this digest{asked}")

    def _pull(self, source: str) -> str:
        """Pull an image and return its id; stop where it grows beyond what is allowed."""
        policy = self._sources.policy
        with tempfile.NamedTemporaryFile("w+", suffix=".json") as anything:
            anything.write('{"default":[{"type":"insecureAcceptAnything"}]}')
            anything.flush()
            options = ["--signature-policy", str(policy or anything.name)]
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
                puller = subprocess.Popen(
                    [*self._podman.command, "pull", "--quiet", *options, source],
                    env=self._podman.variables | {"TMPDIR": str(self._podman.folder)},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=said,
                    cwd="/",
                )
                status, why = self._watch(puller.pid)
                puller.returncode = status
                out.seek(0)
                said.seek(0)
                image_id = out.read().decode().strip().splitlines()[-1:]
                if why and image_id:
                    self._podman.call("rmi", "--force", *image_id)
                if why:
                    raise _Refused(why)
                if status or not image_id:
                    raise _Refused(_told(said.read()))
        return image_id[0]

    def _watch(self, pid: int) -> tuple[int, str]:
        """Wait for podman; return its status, and why it was stopped or its work is void."""
        most, started, why = self._sources.bytes_max, time.monotonic(), ""
        while True:
            found, status, usage = os.wait4(pid, os.WNOHANG)
            wrote = usage.ru_oublock * OUBLOCK_BYTES if found else _written(pid)
            if not why and wrote > most:
                why = f"it takes more than the {_size(most)} that this host has for an image"
            elif not why and self._shelf.is_full():
                why = "the host's disk is full"
            elif not why and time.monotonic() > started + FETCH_SECONDS_MAX:
                why = "it did not arrive within an hour"
            if found:
                return os.waitstatus_to_exitcode(status), why
            if why:
                for stat in descendants(pid):
                    _kill(stat.pid)
                _kill(pid)
            time.sleep(LOOK_SECONDS)


class Containers:
    """podman with its images, and the ranges of user ids of its containers."""

    def __init__(self, podman: Podman, sources: Sources) -> None:
        self.podman = podman
        self._images = Images(podman, sources)
        self._ranges = IdRanges(podman.first_id)

    def order(
        self, spec: WorkSpec, folder: Path, held: Collection[int], limits: Limits
    ) -> dict[str, Any]:
        """Return what the keeper is told of the container of a lease, once its image lies here.

        held: the ranges of other leases, by their first id.
        Raises: NotYet, StartFailed.
        """
        if self.podman.cdi and any(map(is_mps, spec.gpu_uuids)):
            raise StartFailed("work on a share by MPS is run as a process only, without an image")
        if unfit := refused_variables(spec.environment):
            raise StartFailed(f"a variable of work in an image is one line: {', '.join(unfit)}")
        if unfit := unfit_names(spec.secret_variables):
            raise StartFailed(f"a secret of this name is a file only: {', '.join(unfit)}")
        image = self._images.ready(spec.image)
        ids = self._ranges.free(held)
        if ids is None:
            raise NotYet("all ranges of user ids have work")
        return self.podman.order(
            token=secrets.token_hex(8),
            image_id=image.image_id,
            path=spec.environment.get("PATH", image.path),
            folder=folder,
            ids=ids,
            command=spec.command,
            devices=spec.devices,
            limits=limits,
            secret_variables=spec.secret_variables,
            secrets=bool(spec.secrets),
            read_only=spec.read_only,
            way=self.podman.way(),
        )


class _Refused(Exception):
    """The image cannot be had; the text says why."""


def found_in(folder: Path, digest: str) -> str | None:
    """Return how podman names an image of a folder by the digest of its manifest; None: none."""
    for entry in sorted(folder.iterdir())[:FOLDER_ENTRIES_MAX]:
        try:
            if digest in _digests_of(entry):
                return f"{_transport(entry)}:{entry}"
        except (OSError, ValueError, KeyError, TypeError, tarfile.TarError):
            continue  # no image, or one that is still being written
    return None


def _transport(entry: Path) -> str:
    if not entry.is_dir():
        return "oci-archive"
    return "oci" if (entry / "oci-layout").exists() else "dir"


def _digests_of(entry: Path) -> Iterator[str]:
    """Yield the digest of the image that an entry is, in whichever of its forms."""
    match _transport(entry):
        case "dir":
            text = (entry / "manifest.json").read_bytes()
            yield f"sha256:{hashlib.sha256(text).hexdigest()}"
        case "oci":
            yield from _digests(_limited((entry / "index.json").read_bytes()))
        case _:
            with tarfile.open(entry, "r:") as archive:
                file = archive.extractfile("index.json")
                yield from _digests(b"" if file is None else file.read(INDEX_BYTES_MAX))


def _digests(index: bytes) -> list[str]:
    """Return the digest that an OCI index names: of one image, for which of several is not said."""
    manifests = json.loads(index)["manifests"]
    return [str(each["digest"]) for each in manifests] if len(manifests) == 1 else []


def _limited(text: bytes) -> bytes:
    return text[:INDEX_BYTES_MAX]


def _written(pid: int) -> int:
    """Return the bytes that a process and those below it brought to disk so far."""
    wrote = 0
    for each in [pid, *(stat.pid for stat in descendants(pid))]:
        try:
            text = Path(f"/proc/{each}/io").read_text()
        except OSError:
            continue
        wrote += int(text.partition("\nwrite_bytes:")[2].split("\n")[0])
    return wrote


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _told(said: bytes) -> str:
    """Return what podman said in the words of who waits for the image."""
    text = said.decode(errors="replace").lower()
    for words, reason in REASONS:
        if words in text:
            return reason
    return reason_of(said, "podman could not read it")


def _size(size: int) -> str:
    return f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"
