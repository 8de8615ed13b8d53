"""Build the wheel and the sdist into dist/, and try them; nothing is uploaded.

1. Both hold the files that they should, see ``in_wheel`` and ``in_sdist``; twine accepts them.
2. Each is installed with the extras demo and app and constraints.txt into an empty environment,
   and does the main job there (``JOB``) from an empty folder: it trains on the flights, forecasts,
   exports, loads the export, serves the page.
3. The wheel does so with every Python that pyproject.toml names, if an interpreter is at hand
   (on the path or of pyenv) and pip finds a torch for it; the sdist with this one.

Torch is what pip finds: set PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS for one without CUDA.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
RUN = "runs/fedlink-flights-s0"
JOB = (["fedvine", "--version"],
       ["fedvine", "run", "fedlink", "--data", "flights"],
       ["fedvine", "predict", RUN, "--client", "EWR", "--user", "N14228", "--top", "3"],
       ["fedvine", "export", RUN, "--out", "exported"],
       ["python", "exported/load.py", "EWR", "N14228", "LAX", "SFO"],
       ["fedvine", "app", "--help"],
       ["python", "-c", "from fedvine.papers.reproduce import names; print(len(names()), 'pages')"],
       ["python", "-c", "from fedvine.sklearn import LinkForecaster; print(LinkForecaster())"],
       ["fedvine", "completion", "bash"])
SUFFIXES = {".py", ".toml", ".csv", ".html", ".md", ".typed"}
NOT_MINE = re.compile("FEDVINE_|PYTHON|VIRTUAL_ENV|_FEDVINE")


def main() -> int:
    """Build, check and try; return the exit code."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    wheel = DIST / f"fedvine-{version}-py3-none-any.whl"
    sdist = DIST / f"fedvine-{version}.tar.gz"
    for old in (wheel, sdist):
        old.unlink(missing_ok=True)
    if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
        print("Note: what is not committed is in the packages, too.")
    quiet([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)])
    quiet([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
    faults = [*differs(wheel, in_wheel(files(), version)),
              *differs(sdist, in_sdist(files(), version))]
    for file in (wheel, sdist):
        print(f"{file.relative_to(ROOT)}: {len(names(file)):,} files, "
              f"{file.stat().st_size / 1e6:.2f} MB; twine finds no fault")
    print(*faults, sep="\n", end="\n" * bool(faults))

    this, failed = f"{sys.version_info[0]}.{sys.version_info[1]}", len(faults)
    failed += not tried(wheel, this, sys.executable)
    failed += not tried(sdist, this, sys.executable)
    for named in pythons():
        if named == this:
            continue
        found = interpreter(named)
        if found is None:
            print(f"Python {named}: no interpreter is at hand; not tried.")
        else:
            failed += not tried(wheel, named, found, may_lack_torch=True)
    print(f"{failed} failed." if failed else "All passed. Nothing was uploaded.")
    return 1 if failed else 0


# -- what the packages hold ------------------------------------------------------------------------
def files() -> list[str]:
    """List the files of the working tree that git does not ignore."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.check_output(listed, cwd=ROOT, text=True)
    return sorted({f for f in found.split("\0") if f and (ROOT / f).is_file()})


def in_wheel(tree: list[str], version: str) -> set[str]:
    """Return the names that the wheel of a tree should hold: the package and its description."""
    about = f"fedvine-{version}.dist-info"
    return {f.removeprefix("src/") for f in tree if f.startswith("src/fedvine/")
            and Path(f).suffix in SUFFIXES} | {
        f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt",
                                       "licenses/LICENSE")}


def in_sdist(tree: list[str], version: str) -> set[str]:
    """Return the names that the sdist of a tree should hold: sources, tests, and a few files."""
    single = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "constraints.txt",
              "pyproject.toml", ".gitignore"}
    return {f"fedvine-{version}/{f}" for f in [*tree, "PKG-INFO"]
            if f.startswith(("src/", "tests/")) or f in single or f == "PKG-INFO"}


def names(package: Path) -> set[str]:
    """Return the names of the files in a wheel or an sdist."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return {f for f in wheel.namelist() if not f.endswith("/")}
    with tarfile.open(package) as sdist:
        return {m.name for m in sdist if m.isfile()}


def differs(package: Path, wanted: set[str]) -> list[str]:
    """Return a sentence for each file that a package lacks or should not hold."""
    held = names(package)
    return [*(f"{package.name} lacks {f}." for f in sorted(wanted - held)),
            *(f"{package.name} should not hold {f}." for f in sorted(held - wanted))]


# -- the main job, in an empty environment ---------------------------------------------------------
def pythons() -> list[str]:
    """List the versions of Python that pyproject.toml names."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"',
                      (ROOT / "pyproject.toml").read_text("utf-8"))


def interpreter(version: str) -> str | None:
    """Return an interpreter of that version that can make environments, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    asked = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for found in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        if found:
            said = subprocess.run([found, "-c", asked], capture_output=True, text=True, check=False)
            if said.stdout.strip() == version:
                return str(found)
    return None


def tried(package: Path, version: str, python: str, may_lack_torch: bool = False) -> bool:
    """Install a package into an empty environment and do the main job there; say how it went.

    True also where no torch can be had and that is allowed.
    """
    what, began = f"Python {version}, {package.name}", time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedvine-release-") as folder:
        made, work = Path(folder) / "env", Path(folder) / "work"
        work.mkdir()
        env = {k: v for k, v in os.environ.items() if not NOT_MINE.match(k)}
        env |= {"PATH": f"{made / 'bin'}:{env['PATH']}", "HOME": folder, "COLUMNS": "100"}
        install = ["python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                   "--no-compile", "-c", str(ROOT / "constraints.txt")]
        if "PIP_CACHE_DIR" not in env:      # HOME is another one
            env["PIP_CACHE_DIR"] = str(Path.home() / ".cache" / "pip")
        try:
            quiet([python, "-m", "venv", str(made)], env=env)
            try:
                quiet([*install, "torch"], env=env, cwd=work)
            except Failed as failed:
                if not may_lack_torch:
                    raise
                print(f"Python {version}: pip finds no torch for it; not tried "
                      f"({str(failed).splitlines()[-1]})")
                return True
            quiet([*install, f"fedvine[demo,app] @ {package.as_uri()}"], env=env, cwd=work)
            print(f"{what}: installed in {time.monotonic() - began:.0f} s", flush=True)
            for command in JOB:
                said = quiet(command, env=env, cwd=work).splitlines()
                last = next((line for line in reversed(said) if re.search(r"\w", line)), "")
                print(f"  {' '.join(command)}: {last.strip(' │')}", flush=True)
            print(f"  fedvine app {RUN}: {served(env, work)}", flush=True)
        except Failed as failed:
            print(f"{what}: FAILED\n{failed}", flush=True)
            return False
    print(f"{what}: passed in {time.monotonic() - began:.0f} s", flush=True)
    return True


def served(env: dict[str, str], work: Path) -> str:
    """Serve the page of the run, fetch it and its list of runs, and end it; return what came."""
    with subprocess.Popen(["fedvine", "app", RUN, "--port", "0"], env=env, cwd=work, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as page:
        try:
            assert page.stdout is not None
            address = page.stdout.readline().strip()
            if not address.startswith("http://127.0.0.1:"):
                raise Failed(f"fedvine app said: {address} {page.stdout.read()}")
            address, _, token = address.partition("#token=")
            got = [opened(address), opened(f"{address}api/runs", token)]
            if b"<html" not in got[0] or b"fedlink" not in got[1]:
                raise Failed(f"fedvine app answered {got[0][:200]!r} and {got[1][:200]!r}")
        finally:
            page.send_signal(signal.SIGTERM)
    return f"{len(got[0]):,} bytes of page, {len(got[1]):,} of runs"


def opened(address: str, token: str = "") -> bytes:
    """Return what an address on this machine answers to a request with that token."""
    try:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
        with direct.open(asked, timeout=60) as answer:
            return answer.read()
    except OSError as error:
        raise Failed(f"{address} does not answer ({error}).") from error


class Failed(Exception):
    """A command failed; the text has the command and the end of what it printed."""


def quiet(command: list[str], **options: object) -> str:
    """Run a command and return what it printed; raises :class:`Failed`, with the end of that."""
    env = options.get("env")
    program = shutil.which(command[0], path=env["PATH"]) if isinstance(env, dict) else command[0]
    done = subprocess.run([program or command[0], *command[1:]], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n"
                     + "\n".join(done.stdout.strip().splitlines()[-20:]))
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print(failed, file=sys.stderr)
        sys.exit(1)
