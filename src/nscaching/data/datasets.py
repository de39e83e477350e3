"""The known benchmark data sets: found by name, downloaded once, verified on every use.

The files are those of thunlp/OpenKE at one commit. The package holds their SHA-256 sums
(``datasets.toml``), so every source, such as a mirror, gives the same bytes or an error.
"""

import hashlib
import os
import tempfile
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from nscaching.errors import UserError, unknown

Progress = Callable[[str, int, int | None], None]

COMMIT = "43fdf853d7d3f2953833d32c6d69219c47c9ec42"
PUBLIC = f"https://raw.githubusercontent.com/thunlp/OpenKE/{COMMIT}/benchmarks"
TABLE = Path(__file__).with_suffix(".toml")

TIMEOUT = 30.0  # seconds without a byte before a connection is closed
BLOCK = 1 << 16
MAX_BYTES = 64 << 20  # ten times the largest file: a broken or hostile host cannot fill the disk
HINT = "NSCACHING_MIRROR may name a folder or URL that holds the files"


@dataclass(frozen=True)
class KnownDataset:
    """A benchmark data set, the counts of what its files hold, and the SHA-256 of each file."""

    name: str
    folder: str
    title: str
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    sha256: dict[str, str]


KNOWN = {
    name: KnownDataset(name, **values)
    for name, values in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()
}


def find(name: str) -> KnownDataset | None:
    """Return the data set of a name in any spelling, such as "FB15k-237", or None."""
    return KNOWN.get(name.casefold().replace("-", "").replace("_", ""))


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

    ``progress(file, done, total)`` is called as blocks of a file arrive; total may be None. A
    damaged folder is reported, never deleted: it is the user's.
    """
    known = _known(name)
    target = _target(known)
    if not is_cached(name):
        _download(known, target, progress)
    remedy = f"delete the folder {target} to download it again"
    for file, expected in known.sha256.items():
        damaged = f"damaged data set: {target / file}, expected SHA-256 {expected[:12]}"
        with _told(damaged, remedy), (target / file).open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != expected:
            raise UserError(f"{damaged}, found {found[:12]}; {remedy}")
    return target


def _known(name: str) -> KnownDataset:
    known = find(name)
    if known is None:
        raise unknown("data set", name, KNOWN)
    return known


def _target(known: KnownDataset) -> Path:
    return cache_home() / "openke" / known.folder


def _download(known: KnownDataset, target: Path, progress: Progress | None) -> None:
    """Read every file, verified, then write them into a temporary folder and rename that."""
    base, parent = _base(), target.parent
    writing = f"cannot write the cache folder {parent}", "NSCACHING_HOME may name another"
    with _told(*writing):
        parent.mkdir(parents=True, exist_ok=True)
    files = {
        file: _read(f"{base}/{known.folder}/{file}", file, expected, progress)
        for file, expected in known.sha256.items()
    }
    with (
        _told(*writing),
        # What cannot be removed is no reason to fail: the data set is in its place by then.
        tempfile.TemporaryDirectory(".partial", dir=parent, ignore_cleanup_errors=True) as outer,
    ):
        # One level down, since the temporary folder itself is closed to other users of the cache.
        whole = Path(outer) / known.folder
        whole.mkdir()
        for file, data in files.items():
            (whole / file).write_bytes(data)
        try:
            whole.rename(target)
        except OSError:
            # Another process was first: use its folder, which is verified next.
            if not target.is_dir():
                raise


def _base() -> str:
    mirror = os.environ.get("NSCACHING_MIRROR")
    if not mirror:
        return PUBLIC
    if "://" not in mirror:
        mirror = Path(mirror).absolute().as_uri()
    if not mirror.lower().startswith(("http://", "https://", "file://")):
        raise UserError(f"NSCACHING_MIRROR={mirror} is not a folder or an http, https or file URL")
    return mirror.rstrip("/") + "/openke"


def _read(source: str, file: str, expected: str, progress: Progress | None) -> bytes:
    """Return the verified content of a file; every file fits into memory."""
    data = bytearray()
    for block, total in _blocks(source):
        data += block
        if progress is not None:
            progress(file, len(data), total)
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        sums = f"expected SHA-256 {expected[:12]}, found {found[:12]}"
        raise UserError(f"wrong content in {file}: {sums}; read from {source}")
    return bytes(data)


def _blocks(source: str) -> Iterator[tuple[bytes, int | None]]:
    """Yield blocks of the file at a URL, each with the size of the file if the server says it."""
    opener = urllib.request.build_opener(_ToHttps)
    with _told(f"cannot read {source}", HINT), opener.open(source, timeout=TIMEOUT) as stream:
        announced = stream.headers["Content-Length"]
        total = int(announced) if announced else None
        done = 0
        while max(done, total or 0) <= MAX_BYTES:
            if not (block := stream.read(BLOCK)):
                if total is not None and done < total:  # http.client raises no error for it
                    raise ValueError(f"ended at byte {done:,} of {total:,}")
                return
            done += len(block)
            yield block, total
        raise ValueError(f"larger than {MAX_BYTES:,} bytes")


class _ToHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only; urllib would follow them to http and ftp too."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != "https":
            fp.close()
            raise URLError(f"redirected to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


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
        cause = error.reason if isinstance(error, URLError) else error
        said = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        # A server's text may hold anything.
        reason = "".join(c if c.isprintable() else " " for c in said[:200])
        code = f"HTTP {error.code} " if isinstance(error, HTTPError) else ""
        raise UserError(f"{what}: {code}{reason}; {remedy}") from error
