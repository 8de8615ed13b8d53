"""What the tests of wrong input share: a good table, the command line, and what a refusal is."""

import contextlib
import io
import os
from pathlib import Path

from fedvine.cli import main

GOOD = "who,what,at,where\n" + "".join(
    f"u{i % 7},i{(i * i) % 5},{1000 + 10 * i},{'ab'[i % 2]}\n" for i in range(60))
COLUMNS = ["--src", "who", "--dst", "what", "--time", "at", "--client", "where"]
TABLE = ["--data", "good.csv", *COLUMNS]
TINY = ["--set", "method.rounds=1", "--set", "method.width=4", "--set", "method.capacity=20"]
RUN = ["run", "fedlink", *TABLE, *TINY, "--out", "run"]


def fedvine(*arguments):
    """(exit code, stdout, stderr) of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        try:
            main.main([str(a) for a in arguments])
            code = 0
        except SystemExit as stopped:
            code = stopped.code or 0
    return code, out.getvalue(), err.getvalue()


def snapshot(folder):
    """Every path below a folder, with what the files hold."""
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def is_sentence(said, *words):
    """``said`` is one line for a person that holds all the ``words``."""
    assert said.startswith("Error: "), said
    assert said.count("\n") == 1 and said.endswith(".\n"), said
    assert len(said) < 400, said
    for sign in ("Traceback", "pydantic", "not foreseen", "Errno", "\x1b"):
        assert sign not in said, said
    for word in words:
        assert word in said, said


def refused(arguments, *words, ends=2):
    """Exit code ``ends``, one sentence with all the ``words``, and a disk that is as it was.

    The cache may have whole new streams in it: the table was read before something else failed,
    and what data this user opened is remembered.
    """
    here, cache = Path.cwd(), Path(os.environ["FEDVINE_CACHE"])
    opened = cache / "opened"

    def disk():
        return {p: held for p, held in {**snapshot(here), **snapshot(cache)}.items()
                if opened not in (p, p.parent)}

    before = disk()
    code, out, said = fedvine(*arguments)
    assert (code, out) == (ends, ""), said
    is_sentence(said, *words)
    now = disk()
    streams = [p.parent for p in now if p.name == "stream.json" and p.parent.parent == cache]
    read = {p for p in now if p not in before and not {p, *p.parents}.isdisjoint(streams)}
    assert {p: held for p, held in now.items() if p not in read} == before
