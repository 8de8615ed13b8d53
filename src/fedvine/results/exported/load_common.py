"""Read the files of an export: every ``load.py`` begins with this text."""

import sys
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from safetensors.numpy import load_file

HERE = Path(__file__).parent


def folder_of(client):
    """Return a client's folder; raise LookupError, a sentence, where it is not exported."""
    folder = HERE / "clients" / quote(client, safe="")
    if not folder.is_dir():
        there = ", ".join(sorted(unquote(f.name) for f in (HERE / "clients").iterdir()))
        raise LookupError(f"No client {client} was exported; there are {there}.")
    return folder


def places(names, wanted, sentence):
    """Return the places of names; raise LookupError, the sentence, for one that is not there."""
    number = {name: i for i, name in enumerate(names)}
    for name in wanted:
        if str(name) not in number:
            raise LookupError(sentence(name))
    return [number[str(name)] for name in wanted]


def wide(*files):
    """Return all arrays of some files by name, float64."""
    return {name: value.astype(np.float64) for file in files
            for name, value in load_file(file).items()}


def main(words, tell):
    """Call ``tell`` with the words of the command, of which there are at least so many."""
    if len(sys.argv) <= words:
        sys.exit(__doc__)
    try:
        tell(*sys.argv[1:])
    except LookupError as error:
        sys.exit(str(error))
