"""Container images as bids name them: always by the digest of what will run."""

from __future__ import annotations

import re

from ledger.domain.refusal import Invalid

IMAGE_CHARS_MAX = 512
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*@sha256:[0-9a-f]{{64}}")


class ImageWithoutDigest(Invalid):
    """An image is named with its digest and no tag, such as registry.example/train@sha256:….

    `skopeo inspect --format '{{.Digest}}' docker://NAME:TAG` tells the digest of a tag; of an
    archive, `skopeo inspect --raw oci-archive:FILE | sha256sum`.
    """


def check_image(image: str) -> None:
    """Refuse an image that could be one thing today and another tomorrow; empty: there is none.

    A tag is not looked up here: what it means is for who set the limit price to decide, and the
    market asks no registry.

    Raises: ImageWithoutDigest.
    """
    if image and (len(image) > IMAGE_CHARS_MAX or not _IMAGE.fullmatch(image)):
        raise ImageWithoutDigest(given=image[:IMAGE_CHARS_MAX])


def digest_of(image: str) -> str:
    """Return the digest of an image that a bid names."""
    return image.rpartition("@")[2]
