"""Runs ``fedvine``, and kills itself as ``kill -9`` would, in the middle of a named call.

    python killed.py fedvine.experiments.run_files:Logs.append 5 run fedlink --data ...
"""

import functools
import importlib
import os
import signal
import sys


def deadly(place: str, number: int) -> None:
    """The ``number``-th call of ``place`` is carried out, and nothing after it."""
    module, _, way = place.partition(":")
    owner = importlib.import_module(module)
    *outer, name = way.split(".")
    owner = functools.reduce(getattr, outer, owner)
    original, calls = getattr(owner, name), []

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        found = original(*args, **kwargs)
        calls.append(name)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    deadly(sys.argv[1], int(sys.argv[2]))
    from fedvine.cli import main
    main.main(sys.argv[3:])
