"""scripts/release: it uploads nothing, and knows which files belong into the packages."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "scripts" / "release.py").exists()
                                or not (ROOT / ".git").exists() or shutil.which("git") is None,
                                reason="not in a checkout with git")


@pytest.fixture(scope="module")
def release():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "release.py"),
                                            run_name="release"))


@pytest.mark.parametrize("arguments", [[], ["--upload"], ["--try", "--upload"]])
def test_without_try_alone_it_refuses_and_does_nothing(tmp_path, arguments):
    """It runs from a copy, where it would have to make an environment first."""
    (tmp_path / "scripts").mkdir()
    for name in ("release", "setup-env"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([tmp_path / "scripts" / "release", *arguments], capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "uploads nothing" in done.stderr and done.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


#: Packages that one room alone asks for, with a sentence where they are not installed.
EXTRAS = {"nvflare": "federation", "networkx": "data", "optuna": "results",
          "private_set_intersection": "federation", "pymetis": "partitions", "starlette": "app",
          "tgm": "data", "threadpoolctl": "engines", "uvicorn": "app", "voprf": "federation"}


@pytest.mark.slow
def test_what_the_code_imports_is_installed_with_it():
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    base = {re.split(r"[<>=\[ ]", one)[0].lower() for one in said}
    lacks, whose = set(), packages_distributions()
    for file in (ROOT / "src/fedvine").rglob("*.py"):
        room = file.relative_to(ROOT / "src/fedvine").parts[0]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = ([a.name for a in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            for top in {n.split(".")[0] for n in names} - sys.stdlib_module_names - {"fedvine"}:
                known = {d.lower() for d in whose.get(top, [top])} & (base | {"cycler"})
                if not known and EXTRAS.get(top) != room:
                    lacks.add((top, str(file.relative_to(ROOT))))
    assert not lacks


def test_what_the_wheel_should_hold(release):
    wanted = release.in_wheel(release.files(), "1")
    assert {"fedvine/py.typed", "fedvine/results/page.html", "fedvine/papers/fedlink-table1.toml",
            "fedvine/sklearn/__init__.py", "fedvine/cli/main.py",
            "fedvine/results/load.py", "fedvine-1.dist-info/licenses/LICENSE"
            } <= wanted
    papers = {f"fedvine/papers/{f.name}" for f in (ROOT / "src/fedvine/papers").glob("*.csv")}
    assert papers and papers <= wanted
    assert {Path(f).parts[0] for f in wanted} == {"fedvine", "fedvine-1.dist-info"}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_built_holds_that_and_nothing_else(release, tmp_path, kind):
    pytest.importorskip("hatchling", reason="hatchling, which builds packages, is not installed")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder
    builder = {"wheel": WheelBuilder, "sdist": SdistBuilder}[kind](str(ROOT))
    package = Path(next(iter(builder.build(directory=str(tmp_path), versions=["standard"]))))
    version = builder.metadata.version
    wanted = {"wheel": release.in_wheel, "sdist": release.in_sdist}[kind](release.files(), version)
    assert release.differs(package, wanted) == []
    lost, other = sorted(wanted)[0], "tests/other.py"
    assert release.differs(package, wanted - {lost}) == [
        f"{package.name} should not hold {lost}."]
    assert release.differs(package, wanted | {other}) == [f"{package.name} lacks {other}."]
