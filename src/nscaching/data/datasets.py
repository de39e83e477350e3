"""The known benchmark data sets: found by name, downloaded once, verified on every use.

The files are those of thunlp/OpenKE at one commit. The package holds their SHA-256 sums
(``data/openke.sha256``), so every source, such as a mirror, gives the same bytes or an error.
"""

import functools
import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, BinaryIO, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from nscaching.errors import UserError, unknown

Progress = Callable[[str, int, int | None], None]

COMMIT = "43fdf853d7d3f2953833d32c6d69219c47c9ec42"
PUBLIC = f"https://raw.githubusercontent.com/thunlp/OpenKE/{COMMIT}/benchmarks"
PINNED = Path(__file__).parent / "openke.sha256"

TIMEOUT = 30.0  # seconds without a byte before a connection is closed
BLOCK = 1 << 16
MAX_BYTES = 64 << 20  # ten times the largest file: a broken or hostile host cannot fill the disk
HINT = "NSCACHING_MIRROR may name a folder or URL that holds the files"


@dataclass(frozen=True)
class KnownDataset:
    """A benchmark data set and the counts its files hold."""

    name: str
    folder: str
    title: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int


KNOWN: dict[str, KnownDataset] = {
    known.name: known
    for known in (
        KnownDataset("wn18", "WN18", "WN18", 40943, 18, 141442, 5000, 5000),
        KnownDataset("wn18rr", "WN18RR", "WN18RR", 40943, 11, 86835, 3034, 3134),
        KnownDataset("fb15k", "FB15K", "FB15k", 14951, 1345, 483142, 50000, 59071),
        KnownDataset("fb15k237", "FB15K237", "FB15k-237", 14541, 237, 272115, 17535, 20466),
        KnownDataset("fb13", "FB13", "FB13", 75043, 13, 316232, 5908, 23733),
    )
}


def find(name: str) -> KnownDataset | None:
    """Return the data set of a name in any spelling, such as "FB15k-237", or None."""
    return KNOWN.get(name.casefold().replace("-", "").replace("_", ""))


@functools.cache
def checksums(folder: str) -> dict[str, str]:
    """Return the pinned SHA-256 of every file of the data set in that folder."""
    lines = (line.split() for line in PINNED.read_text(encoding="ascii").splitlines())
    return {Path(path).name: sha for sha, path in lines if path.startswith(f"{folder}/")}


def cache_home() -> Path:
    """Return the folder that downloads are kept in: NSCACHING_HOME or the user's cache folder."""
    if home := os.environ.get("NSCACHING_HOME"):
        return Path(home)
    import platformdirs

    return platformdirs.user_cache_path("nscaching")


def is_cached(name: str) -> bool:
    """Say whether the data set has been downloaded (not whether it is undamaged)."""
    try:
        return _target(_known(name)).is_dir()
    except OSError:  # a cache folder without permission to look into; fetch says why
        return False


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Return the folder of a known data set, complete and verified; download it on first use.

    ``progress(file, done, total)`` is called as blocks of a file arrive; total may be None.
    """
    known = _known(name)
    target = _target(known)
    if not is_cached(name):
        _download(known, target, progress)
    _verify(target, checksums(known.folder))
    return target


def _known(name: str) -> KnownDataset:
    known = find(name)
    if known is None:
        raise unknown("data set", name, KNOWN)
    return known


def _target(known: KnownDataset) -> Path:
    return cache_home() / "openke" / known.folder


def _verify(target: Path, sums: dict[str, str]) -> None:
    """Check a cached folder. A damaged folder is reported, never deleted: it is the user's."""
    remedy = f"delete the folder {target} to download it again"
    for file, expected in sums.items():
        damaged = f"damaged data set: {target / file}, expected SHA-256 {expected[:12]}"
        with _told(damaged, remedy), (target / file).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != expected:
            raise _error(f"{damaged}, found {found[:12]}; {remedy}")


def _download(known: KnownDataset, target: Path, progress: Progress | None) -> None:
    """Write every file, verified, into a temporary folder, then rename that into place."""
    with _told("cannot use NSCACHING_MIRROR", HINT):
        base = _base()
    parent = target.parent
    remedy = "NSCACHING_HOME may name another"
    writing = functools.partial(_told, f"cannot write the cache folder {parent}", remedy)
    with writing():
        parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(
            ".partial", f"{known.folder}.", parent, ignore_cleanup_errors=True
        )
    with temporary as outer:  # removed on the way out, whatever happens
        # One level down, since the temporary folder itself is closed to other users of the cache.
        whole = Path(outer) / known.folder
        for file, expected in checksums(known.folder).items():
            data = _read(f"{base}/{known.folder}/{file}", file, expected, progress)
            with writing():
                whole.mkdir(exist_ok=True)
                (whole / file).write_bytes(data)
        with writing():
            try:
                whole.rename(target)
            except OSError:
                # Another process was first: use its folder, which is verified next.
                if not target.is_dir():
                    raise


def _base() -> str:
    """Return the folder or the URL under which the folders of the data sets lie."""
    mirror = os.environ.get("NSCACHING_MIRROR")
    if not mirror:
        return PUBLIC
    url = urlsplit(mirror)
    if url.scheme in ("http", "https") and url.netloc:
        return mirror.rstrip("/") + "/openke"
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        folder = Path(urllib.request.url2pathname(url.path))
    elif "://" in mirror:
        raise _error(f"NSCACHING_MIRROR={mirror} is not a folder or an http, https or file URL")
    else:
        folder = Path(mirror)
    if not folder.is_dir():
        raise _error(f"NSCACHING_MIRROR={mirror} is not a folder; {HINT}")
    return str(folder / "openke")


def _read(source: str, file: str, expected: str, progress: Progress | None) -> bytes:
    """Return the verified content of a file; every file fits into memory."""
    data = bytearray()
    unreadable = f"cannot read {source}"
    with _told(unreadable, HINT):
        stream, total = _open(source)
    with stream:
        while max(len(data), total or 0) <= MAX_BYTES:
            with _told(unreadable, HINT):
                block = stream.read(BLOCK)
            if not block:
                break
            data += block
            if progress is not None:
                progress(file, len(data), total)
    if max(len(data), total or 0) > MAX_BYTES:
        raise _error(f"{unreadable}: larger than {MAX_BYTES:,} bytes; {HINT}")
    if total is not None and len(data) < total:  # http.client raises no error for it
        raise _error(f"{unreadable}: ended at byte {len(data):,} of {total:,}; {HINT}")
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        sums = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
        raise _error(f"wrong content in {file}: {sums}; read from {source}")
    return bytes(data)


class _ToHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only; urllib would follow them to http and ftp too."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            fp.close()
            raise URLError(f"redirected to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(source: str) -> tuple[BinaryIO, int | None]:
    """Open a file or an http(s) URL; also return its announced size."""
    if "://" not in source:  # a path: pathlib never leaves "://" in one
        total = Path(source).stat().st_size
        return Path(source).open("rb"), total
    response = urllib.request.build_opener(_ToHttps).open(source, timeout=TIMEOUT)
    return cast(BinaryIO, response), response.length


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """Turn an error of the disk or the network into one line: what, the reason, the remedy."""
    try:
        yield
    except UserError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a malformed URL
        if isinstance(error, HTTPError):
            error.close()
        raise _error(f"{what}: {_reason(error)[:200]}; {remedy}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, Exception):
        return _reason(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _error(text: str) -> UserError:
    """Build a message of one line, whatever a path or a server put into it."""
    return UserError("".join(c if c.isprintable() else " " for c in text))
