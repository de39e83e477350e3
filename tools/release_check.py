"""Install what is in dist/ into an empty environment of each Python, and try it there.

python tools/release_check.py [PYTHON …]     without names: python3.11, python3.12, python3.13
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
TRIED = ("--version", "datasets", "presets", "audit world", "demo")


def call(*words: str | Path, cwd: Path = ROOT) -> str:
    line = [str(word) for word in words]
    done = subprocess.run(line, cwd=cwd, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_content(wheel: Path, sdist: Path) -> None:
    """Compare both with the files that git knows, so that no template or table is left out."""
    known = set(call("git", "ls-files", "src/nscaching").split())
    with zipfile.ZipFile(wheel) as file:
        in_wheel = {f"src/{name}" for name in file.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as packed:
        in_sdist = {name.partition("/")[2] for name in packed.getnames()}
    for what, names in {wheel.name: in_wheel, sdist.name: in_sdist}.items():
        if missing := known - names:
            raise SystemExit(f"{what} lacks {', '.join(sorted(missing))}")
    if more := in_wheel - known:
        raise SystemExit(f"{wheel.name} has {', '.join(sorted(more))}, which git does not know")
    for path in (wheel, sdist):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB", flush=True)


def try_out(python: str, package: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call(python, "-m", "venv", folder / "env")
        found = folder / "env" / "bin"
        call(found / "pip", "install", "--quiet", package, cwd=folder)
        for words in TRIED:
            printed = call(found / "nscaching", *words.split(), cwd=folder)
        best = next(line for line in printed.splitlines() if line.split()[:1] == ["nscaching"])
        print(f"{python}: {package.name} installed; demo: {' '.join(best.split())}", flush=True)


def main() -> None:
    (wheel,), (sdist,) = ((ROOT / "dist").glob(kind) for kind in ("*.whl", "*.tar.gz"))
    check_content(wheel, sdist)
    for python in sys.argv[1:] or PYTHONS:
        try:
            call(python, "--version")
        except (SystemExit, FileNotFoundError):
            print(f"{python} is not here: not tried")
            continue
        try_out(python, wheel)
    try_out(sys.executable, sdist)


if __name__ == "__main__":
    main()
