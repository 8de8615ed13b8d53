"""The memory of a client or the server on disk: safetensors with a checksum, nothing unpickled.

A checksum is made with a key (of the experiment, and of the save's name), so that a save that was
changed, or that belongs to another run or another place in it, is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder
from fedvine.core.message import Packed

FORMAT = "1"        # of a file of :func:`write`; raised when an older one is not read


def checkpoint(t: int, r: int) -> str:
    """Return the name of the save after round ``r`` of stage ``t``; names sort as the saves do."""
    return f"{t:06d}-{r:06d}"


def checked(name: str) -> str:
    """Return the name of a save, which becomes a folder's; raise for any other text."""
    if not re.fullmatch(r"\d{6}-\d{6}", name):
        raise FedvineError(f"{name!r} is not the name of a checkpoint; refused.")
    return name


def digest_of(value: Any, key: bytes = b"") -> str:
    """Return 32 hex digits that identify plain values under a ``key`` of at most 64 bytes."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()


def write_packs(packs: Mapping[str, Packed], folder: Path, key: bytes = b"") -> None:
    """Write a folder with one safetensors file, whole or not at all."""
    with atomic_folder(folder) as target:
        write(packs, target / "client.safetensors", key)


def read_packs(folder: Path, key: bytes = b"") -> dict[str, Packed]:
    """Return what :func:`write_packs` wrote; raise if it cannot be read or was changed."""
    try:
        return read(folder / "client.safetensors", key)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FedvineError(f"{folder} cannot be read ({error}); delete it, an earlier save will "
                           "be used.") from error


def write(packs: Mapping[str, Packed], file: Path, key: bytes = b"") -> None:
    """Write packs as one safetensors file. Raises :class:`OSError` for a full disk."""
    tensors = {f"{number}/{i}": buffer for number, pack in enumerate(packs.values())
               for i, buffer in enumerate(pack.buffers)}
    skeletons = {name: base64.b64encode(pack.skeleton).decode() for name, pack in packs.items()}
    try:
        save_file(tensors or {"none": np.zeros(0, np.uint8)}, file,
                  {"format": FORMAT, "packs": json.dumps(skeletons), "sum": _sum(packs, key)})
    except SafetensorError as error:  # a full disk, above all
        raise OSError(str(error)) from error


def read(file: Path, key: bytes = b"") -> dict[str, Packed]:
    """Return what :func:`write` wrote with this key; raise :class:`ValueError` if it changed."""
    with safe_open(file, "numpy") as tensors:
        held: dict[int, list[tuple[int, str]]] = {}
        for name in tensors.keys():  # noqa: SIM118 (not a dict)
            if "/" in name:
                number, i = name.split("/")
                held.setdefault(int(number), []).append((int(i), name))
        notes = tensors.metadata() or {}
        if notes.get("format") != FORMAT:
            raise ValueError(f"{file.name} was written by another version of fedvine")
        found = {name: Packed(base64.b64decode(skeleton),
                              [tensors.get_tensor(t) for _, t in sorted(held.get(number, []))])
                 for number, (name, skeleton) in enumerate(json.loads(notes["packs"]).items())}
    if notes.get("sum") != _sum(found, key):
        raise ValueError(f"{file.name} was changed, or is another run's")
    return found


def _sum(packs: Mapping[str, Packed], key: bytes) -> str:
    """Return the checksum of packs under a key, 32 hex digits."""
    found = hashlib.blake2b(digest_size=16, key=key)
    for name, pack in packs.items():
        facts = [name, len(pack.skeleton), [(b.dtype.str, b.shape) for b in pack.buffers]]
        found.update(json.dumps(facts).encode())
        found.update(pack.skeleton)
        for buffer in pack.buffers:
            found.update(np.ascontiguousarray(buffer).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
