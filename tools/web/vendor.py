"""Fetch the JavaScript libraries of the dashboard into `src/penstock/serve/web/vendor`.

They come through `npm` and whatever registry it is set up with, at the versions below, and are
checked. What is written is committed, so users and tests fetch nothing. Each library becomes one
minified ES module; its licence is written beside it.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENDOR = ROOT / "src/penstock/serve/web/vendor"


@dataclass(frozen=True)
class Library:
    """One package of npm: the files that are taken, by the names that they get."""

    package: str
    version: str
    sha256: str
    """Of the package as npm packs it."""
    files: dict[str, str]
    change: Callable[[str], str] = str


def _as_module(code: str) -> str:
    # Only this build of uPlot is minified; as a script it would need a global variable.
    return f"{code.rstrip()}\nexport default uPlot;\n"


def _from_here(code: str) -> str:
    # A browser finds "preact" only with an import map, which is an inline script.
    return re.sub(r'from\s*"preact"', 'from"./preact.mjs"', code)


LIBRARIES = [
    Library(
        "preact",
        "11.2.0",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        {"dist/preact.mjs": "preact.mjs", "hooks/dist/hooks.mjs": "preact-hooks.mjs"},
        _from_here,
    ),
    Library(
        "htm",
        "3.1.1",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"dist/htm.mjs": "htm.mjs"},
    ),
    Library(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {"dist/uPlot.iife.min.js": "uplot.mjs"},
        _as_module,
    ),
    Library(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {"dist/uPlot.min.css": "uplot.css"},
    ),
    Library(
        "@dagrejs/dagre",
        "3.1.3",
        "12441833c8af49e5a241d94bfd53159875965876b3f4f3214abafe1ed6a9ee4c",
        {"dist/dagre.esm.js": "dagre.mjs"},
    ),
]


def main() -> int:
    """Write all libraries and their licences; 1 if one cannot be had."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        packed = _packed(library)
        if packed is None:
            return 1
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for path, name in library.files.items():
                code = library.change(_without_map(_read(archive, path)))
                (VENDOR / name).write_text(code)
            licence = _read(archive, "LICENSE")
        short = library.package.rsplit("/", 1)[-1]
        (VENDOR / f"{short}.LICENSE.txt").write_text(licence)
    versions = sorted({f"{library.package} {library.version}" for library in LIBRARIES})
    print(f"{', '.join(versions)} are in {VENDOR.relative_to(ROOT)}")
    return 0


def _packed(library: Library) -> bytes | None:
    with tempfile.TemporaryDirectory() as directory:
        spec = f"{library.package}@{library.version}"
        try:
            done = subprocess.run(
                ["npm", "pack", "--silent", spec],
                cwd=directory,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            print("npm is not installed (Debian: apt-get install npm)")
            return None
        found = list(Path(directory).glob("*.tgz"))
        if done.returncode != 0 or not found:
            print(f"{spec} cannot be fetched: {done.stderr.strip()}")
            return None
        packed = found[0].read_bytes()
    if hashlib.sha256(packed).hexdigest() != library.sha256:
        print(f"{spec} is not the package that was checked")
        return None
    return packed


def _read(archive: tarfile.TarFile, path: str) -> str:
    member = archive.extractfile(f"package/{path}")
    assert member is not None, path
    return member.read().decode()


def _without_map(code: str) -> str:
    # A browser that has its tools open would ask the server for the map.
    return re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", code)


if __name__ == "__main__":
    sys.exit(main())
