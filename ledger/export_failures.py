"""Why exports could not be written, said to finance: what is wrong, and what to do about it.

What the system itself said, such as an errno or the answer of a bucket, is not lost: it stands
behind the sentence in the log, and below it in the notice.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

from ledger.domain.refusal import Refusal

OF_ERRNO: Mapping[int, str] = {
    errno.ENOENT: "The folder is missing. Make it, or mount the share that it lies on.",
    errno.ENOTDIR: "There is a file where a folder should be. Move the file, or name another"
    " folder in `OFFPEAK_EXPORTS_TO`.",
    errno.EACCES: "The market may not write there. Give its user the right to write to the folder.",
    errno.EROFS: "The folder can only be read. Mount it so that it can be written to.",
    errno.ENOSPC: "The disk is full. Make room on it.",
    errno.EDQUOT: "The market has used up its share of the disk. Make room, or raise its quota.",
    errno.EIO: "The disk or the share reports a fault. Look after it, or mount it anew.",
}
"""What the system says of a folder, in words."""
SAME = {
    errno.EEXIST: errno.ENOTDIR,
    errno.EPERM: errno.EACCES,
    errno.ESTALE: errno.EIO,
    errno.ETIMEDOUT: errno.EIO,
    errno.EHOSTDOWN: errno.EIO,
}
"""Other numbers that mean the same to whoever has to mend it."""
_KEY = "The bucket does not know the key. Check the key of S3 that the market is given."
_RIGHT = "The bucket refused the key. Give it the right to write objects there (`s3:PutObject`)."
OF_ANSWER: Mapping[str, str] = {
    "NoSuchBucket": "There is no such bucket. Make it, or name another one in"
    " `OFFPEAK_EXPORTS_TO`.",
    "AccessDenied": _RIGHT,
    "403": _RIGHT,
    "InvalidAccessKeyId": _KEY,
    "SignatureDoesNotMatch": _KEY,
    "ExpiredToken": "The key of the bucket has run out. Give the market a new one.",
    "PermanentRedirect": "The bucket lies in another region. Name its region in"
    " `OFFPEAK_STORAGE_REGION`.",
    "SlowDown": "The bucket takes no more at the moment. Nothing need be done.",
}
"""What a bucket answers, in words."""
_AWAY = "The host of the bucket does not answer. Check its address, the network and its firewall."
OF_CLIENT: Mapping[str, str] = {
    "EndpointConnectionError": "The host of the bucket is unknown or does not answer. Check its"
    " address (`OFFPEAK_STORAGE_ENDPOINT_URL`) and the network.",
    "ConnectTimeoutError": _AWAY,
    "ReadTimeoutError": _AWAY,
    "ConnectionClosedError": _AWAY,
    "SSLError": "The certificate of the bucket's host is not trusted. Check its address, or have"
    " the machine trust who issued it.",
    "NoCredentialsError": "The market has no key of the bucket. Give it one of S3.",
    "PartialCredentialsError": "Half of the bucket's key is missing. Give the market both parts.",
}
"""What the client of S3 says before a bucket could answer, by the name of its error."""
UNKNOWN = "It failed in a way that has no words yet; an operator finds it in the log."


def why_not_written(failed: Exception) -> str:
    """Return what is wrong and what to do about it, in sentences."""
    for each in _behind(failed):
        if isinstance(each, Refusal):
            return f"{each} {each.advice()}".strip()
        if isinstance(each, OSError) and each.errno is not None:
            told = OF_ERRNO.get(SAME.get(each.errno, each.errno))
        else:
            told = OF_ANSWER.get(_answer(each)) or OF_CLIENT.get(type(each).__name__)
        if told:
            return told
    return UNKNOWN


def said_by_system(failed: Exception) -> str:
    """Return what was raised, as a program words it."""
    return f"{type(failed).__name__}: {failed}"


def _behind(failed: BaseException) -> Iterator[BaseException]:
    """Yield the failure and what led to it."""
    each: BaseException | None = failed
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__


def _answer(failed: BaseException) -> str:
    """Return the code that a bucket answered; empty: it did not."""
    response = getattr(failed, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
