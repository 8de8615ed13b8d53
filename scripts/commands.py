"""Run every command of README.md and docs/*.md as a reader would; a failure makes this one fail.

A command is
- each line of a block without a language (a line that ends in a backslash goes on); `hub` or `site`
  before it says where it is typed, # begins a comment. Anything else gets a language, such as text.
- each block of Python, which runs by itself and is called by its first line. If that is a comment
  with a file's name (# my.py), the block is written to that file instead.
- text between backquotes that begins with `fedvine`, `scripts/`, `python -m`, `python examples/` or
  `pip install`. With no word after `fedvine SUBCOMMAND` it only names it, and --help is asked.

A page has a fresh copy of the working tree, where its commands run in order, without a network
(but `scripts/`, which install what they need), and an environment made by `pip install -c
constraints.txt .` with those extras alone that the page's own `pip install` lines name. A comment
anywhere on the page says which commands are not simply run:

    <!-- slow `beginning of the command`: how long, and why -->      not with --quick
    <!-- network `...`: what it fetches -->                          only with --network
    <!-- machines `...`: what it needs -->                           never
    <!-- template `...`: what stands for what -->                    never

The longest beginning counts; a mark that fits no command is an error. README's marks are in this
file. A page with the line "> **Not up to date.** ..." near its top is text and has no commands. A
slow command is stopped after --minutes and then counts as run as far as it came. Commands that make
an environment are reported with the one made as they say.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"slow": "takes long", "network": "needs a network", "machines": "needs machines",
         "template": "template"}
LINE = re.compile(r"(?:(?:hub|site)\s+)?((?:fedvine|scripts/[\w-]+|python3?|source|"
                  r"(?:\.venv/bin/)?pip)(?=\s|$).*)")
INLINE = re.compile(r"(?:[A-Z_]+=\S+ )?(?:fedvine \w|scripts/[a-z]|python -m |python examples/|"
                    r"pip install )")
MARK = re.compile(rf"({'|'.join(KINDS)}) `([^`]+)`: (.+)", re.S)
FROZEN = "> **Not up to date.**"    # near the top of a page: as in fedvine.results.frozen
FILE = re.compile(r"# (\w+\.py)")
OPEN = re.compile(r"\.\.\.|(?<=\s)(COMMAND|FILE|KIT|METHOD|NAME|RUN)(?=\s|$)")
#: Marks of the README, which is without comments.
README = """
<!-- network `scripts/`: installs what it needs into .venv first -->
<!-- slow `import fedvine as fv`: a minute -->
<!-- network `fedvine reproduce`: fetches data of the papers -->
"""
INSTALL = re.compile(r"python3? -m venv|source |(\S*/)?pip install")


@dataclass(frozen=True)
class Command:
    """One command of a page; ``mark`` is one of KINDS, "install", or "" for one that is run."""

    text: str
    line: int
    mark: str = ""
    reason: str = ""
    code: str = ""      # of a block of Python


def pages() -> list[Path]:
    """The README first, then the pages of docs/ in the order of their names."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def marked(page: Path) -> str:
    """The text of a page, with its marks."""
    return page.read_text() + (README if page.name == "README.md" else "")


def commands(page: str) -> list[Command]:
    """The commands of a page's text. Raises ValueError for what is none, and for a loose mark.

    A page of runs with an earlier protocol is text: it has none.
    """
    if any(line.startswith(FROZEN) for line in page.splitlines()[:6]):
        return []
    found: list[tuple[int, str]] = []
    python = {page[:block.start(1)].count("\n") + 1: block[1]
              for block in re.finditer(r"^```python\n(.*?)^```$", page, re.S | re.M)}
    for at, line in _blocks(page):
        fits = LINE.fullmatch(line)
        if not fits:
            raise ValueError(f"line {at}: {line!r} stands in a block of commands and is none; "
                             "give the block a language, such as text")
        found.append((at, re.sub(r"\s+# .*", "", fits[1]).strip()))
    prose = re.sub(r"^```.*?^```$|<!--.*?-->", lambda m: "\n" * m[0].count("\n"), page,
                   flags=re.S | re.M)
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        text = " ".join(span[1].split())
        if INLINE.match(text):
            if re.fullmatch(r"fedvine \w+", text):
                text += " --help"
            if text not in (t for _, t in found):
                found.append((prose[:span.start()].count("\n") + 1, text))
    marks = {}
    for comment in re.findall(r"<!--(.*?)-->", page, re.S):
        fits = MARK.fullmatch(" ".join(comment.split()))
        if fits:
            marks[fits[2]] = fits[1], fits[3]
        elif re.match(rf"\s*({'|'.join(KINDS)})\b", comment):
            raise ValueError(f"a mark is <!-- KIND `command`: reason -->, not <!--{comment}-->")
    listed = []
    found += [(at, code.split("\n", 1)[0]) for at, code in python.items()]
    for at, text in sorted(found):
        begins = max((m for m in marks if text.startswith(m)), key=len, default=None)
        if begins is None and OPEN.search(text) and at not in python:
            raise ValueError(f"line {at}: `{text}` has dots or a word that stands for another, so "
                             "it needs a mark that says why")
        install = "install" if INSTALL.match(text) and at not in python else ""
        listed.append(Command(text, at, *marks.get(begins, (install, "")), python.get(at, "")))
    for begins in marks:
        if not any(c.text.startswith(begins) for c in listed):
            raise ValueError(f"no command begins with `{begins}`, which a mark names")
    return listed


def extras(listed: Iterable[Command]) -> frozenset[str]:
    """The extras that a page's own installation names: ".[demo,flare]" are two."""
    return frozenset(e for c in listed if c.mark == "install"
                     for some in re.findall(r"\.\[([\w,]+)\]", c.text) for e in some.split(","))


def _blocks(page: str) -> Iterable[tuple[int, str]]:
    """Lines of blocks without a language, with their numbers; continued ones are joined."""
    inside, plain, held, began = False, False, "", 0
    for at, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            inside, plain = not inside, not inside and line.strip() == "```"
        elif inside and plain and line.strip():
            began = began if held else at
            held += line.rstrip("\\").strip() + " "
            if not line.endswith("\\"):
                yield began, held.strip()
                held = ""


class Reader:
    """Somebody with a copy of the repository: makes environments, runs commands."""

    def __init__(self, work: Path, seconds: float) -> None:
        self.work, self.seconds = work, seconds
        self.tree = work / "tree"
        listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        self.made: dict[frozenset[str], Path] = {}

    def environment(self, wanted: frozenset[str]) -> Path:
        """One made as documented. With extras it looks into the one without, to save the time."""
        if wanted not in self.made:
            plain = self.environment(frozenset()) if wanted else None
            made = self.work / "-".join(["env", *sorted(wanted)])
            self.say(f"pip install -c constraints.txt .{_asked(wanted)}")
            subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] if plain else []),
                            made], check=True)
            if plain is not None:
                packages, = (made / "lib").glob("python*/site-packages")
                below, = (plain / "lib").glob("python*/site-packages")
                (packages / "plain.pth").write_text(f"{below}\n")
            began = time.monotonic()
            subprocess.run([made / "bin/python", "-m", "pip", "install", "-qq",
                            "--disable-pip-version-check", "-c", "constraints.txt",
                            f".{_asked(wanted)}"], cwd=self.tree, check=True)
            if plain is not None:       # the same code is compiled once
                shutil.rmtree(packages / "fedvine")
            self.say(f"  made in {time.monotonic() - began:.0f} s")
            self.made[wanted] = made
        return self.made[wanted]

    def run(self, text: str, folder: Path, environment: Path) -> tuple[int | None, str]:
        """Exit status, None for one that was stopped, and what the command wrote."""
        with open(self.work / "output", "w+") as out:
            process = subprocess.Popen(
                [*([] if text.startswith("scripts/") else _alone()), "bash", "-c", text],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True, env={
                    **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
                    "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
                    "FEDVINE_CACHE": str(self.work / "cache")})
            status: int | None = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(self.seconds)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            out.seek(0)
            return status, out.read()

    @staticmethod
    def say(line: str) -> None:
        print(line, flush=True)

    def read(self, page: Path, quick: bool, network: bool) -> list[str]:
        """Run the commands of a page and say what came of each; the failures, as sentences."""
        name = str(page.relative_to(ROOT))
        try:
            listed = commands(marked(page))
        except ValueError as error:
            return [f"{name}, {error}."]
        leave = {"machines", "template", *(["slow"] if quick else []),
                 *([] if network else ["network"])}
        self.say(f"\n{name}")
        failures = []
        folder = self.work / "pages" / page.stem
        ready = any(c.mark not in leave | {"install"} for c in listed)
        environment = self.environment(extras(listed)) if ready else None
        if ready:
            shutil.copytree(self.tree, folder)
        for c in listed:
            if c.mark in leave:
                self.say(f"  {KINDS[c.mark] + ':':17} {c.text}\n{'':20}{c.reason}")
            elif c.mark == "install":
                self.say(f"  {'environment:':17} {c.text}")
            else:
                assert environment is not None
                began = time.monotonic()
                file = FILE.fullmatch(c.text)
                if c.code:
                    (folder / (file[1] if file else "block.py")).write_text(c.code)
                status, wrote = (0, "") if file else self.run(
                    "python block.py" if c.code else c.text, folder, environment)
                took = time.monotonic() - began
                if status == 0 or (status is None and c.mark == "slow"):
                    word = f"{'ran' if status == 0 else 'stopped at'} {took:.0f} s:"
                    self.say(f"  {word:17} {c.text}")
                else:
                    end = ("did not end and is not marked slow" if status is None
                           else f"ended with {status}")
                    failures.append(f"{name}, line {c.line}: `{c.text}` {end}.")
                    self.say(f"  {'FAILED:':17} {c.text}\n"
                             + "\n".join(f"    | {row}" for row in wrote.splitlines()[-15:]))
        shutil.rmtree(folder, ignore_errors=True)
        return failures


def _asked(wanted: frozenset[str]) -> str:
    return f"[{','.join(sorted(wanted))}]" if wanted else ""


@cache
def _alone() -> list[str]:
    """What runs a command with no network but loopback, where this machine allows that."""
    words = ["unshare", "-n" if os.getuid() == 0 else "-rn", "bash", "-c",
             'ip link set lo up && exec "$@"', "alone"]
    able = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True)
    return words if able and able.returncode == 0 else []


def main() -> int:
    """Read the pages; 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="these alone")
    parser.add_argument("--quick", action="store_true", help="without commands marked slow")
    parser.add_argument("--network", action="store_true", help="also those marked network")
    parser.add_argument("--minutes", type=float, default=10, help="for one command (10)")
    given = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(prefix="fedvine-commands-") as work:
        reader = Reader(Path(work), 60 * given.minutes)
        for page in [p.resolve() for p in given.pages] or pages():
            failures += reader.read(page, given.quick, given.network)
    print("", *failures, f"{len(failures)} commands failed." if failures else
          "Every command that was run ended well.", sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
