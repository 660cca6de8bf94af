"""Runs the tests of the dashboard's JavaScript modules: `*.test.mjs` beside this file."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

WEB = Path(str(files("penstock.serve"))) / "web"
TESTS = sorted(Path(__file__).parent.glob("*.test.mjs"))
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_the_modules_compute_what_their_tests_say(test: Path) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", str(test)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"^# pass (\d+)", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed[1]) > 0


def test_no_module_or_page_names_another_server() -> None:
    own = [p for p in WEB.rglob("*") if p.suffix in (".mjs", ".js", ".css", ".html")]
    assert len(own) > 20
    for path in own:
        if path.parent.name != "vendor":
            # A namespace of XML is a name, nothing is fetched from it.
            assert re.findall(r"https?://[\w.]+", path.read_text()) == [], path


def test_no_page_has_inline_scripts_or_styles() -> None:
    page = (WEB / "index.html").read_text()
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\son\w+=|\sstyle=", page)


def test_every_import_of_a_module_exists() -> None:
    found = 0
    for path in WEB.rglob("*.mjs"):
        for name in re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name} imports {name}"
            found += 1
    assert found > 40


def test_every_library_has_its_licence_beside_it() -> None:
    vendor = WEB / "vendor"
    libraries = {path.name.split(".")[0].split("-")[0] for path in vendor.glob("*.mjs")}
    assert libraries == {"preact", "htm", "uplot", "dagre"}
    for library in libraries:
        assert len((vendor / f"{library}.LICENSE.txt").read_text()) > 500


def test_all_files_together_are_smaller_than_300_kilobytes() -> None:
    sent = [p for p in WEB.rglob("*") if p.is_file() and not p.name.endswith(".LICENSE.txt")]
    assert sum(path.stat().st_size for path in sent) < 300 * 1024


def test_the_first_page_asks_for_all_its_modules_at_once() -> None:
    page = (WEB / "index.html").read_text()
    asked = set(re.findall(r'<link rel="modulepreload" href="([^"]+)"', page))
    needed, left = set[Path](), [WEB / "js" / "main.mjs"]
    while left:
        path = left.pop()
        if path not in needed:
            needed.add(path)
            names = re.findall(
                r"""^(?:import|export)[^;]*?["'](\.[^"']+)["']""", path.read_text(), re.M
            )
            names += re.findall(r'from"(\./[^"]+)"', path.read_text())
            left += [(path.parent / name).resolve() for name in names]
    wanted = {str(path.relative_to(WEB)) for path in needed} - {"js/main.mjs"}
    assert asked == wanted
