"""What sites and hub note of each secure sum in ``scripts/bench kill9-secure``.

A site keeps its vector as it was before the masks, the hub the sum that it opened. A site that has
a file ``die`` with the name of an exchange stops in the middle of that one, and says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.files import atomic

STEPS = ("keys", "shares", "masked", "agree", "unmask")
NOTES = "notes"         # a folder in a site's kit, and in the hub's


def witnessed(party: type, open_sum: Callable[..., Any]) -> tuple[type, Callable[..., Any]]:
    """Return both as they are, but for notes of what they do."""
    class Witnessed(party):         # type: ignore[misc]
        def _step(self, step: str) -> None:
            super()._step(step)
            kit = Path(os.environ["FEDVINE_SITE"])
            if (kit / "die").exists() and (kit / "die").read_text() == step:
                (kit / "die").unlink()
                with atomic(kit / "dying", "w") as file:
                    file.write(str(self.number))
                time.sleep(600)                 # until it is killed

        def masked(self, vector: np.ndarray, sealed: Any) -> np.ndarray:
            found = super().masked(vector, sealed)
            mine = self._keys[self.name]["mask"].hex()
            note(Path(os.environ["FEDVINE_SITE"]), mine, vector, number=self.number)
            return found

    def opened(vectors: Any, keys: Any, *more: Any) -> np.ndarray:
        total = open_sum(vectors, keys, *more)
        note(Path(os.environ["FEDVINE_HUB"]), str(time.time_ns()), total,
             came=sorted(vectors), keys={name: sent["mask"].hex() for name, sent in keys.items()})
        return total

    return Witnessed, opened


def note(folder: Path, name: str, vector: np.ndarray, **facts: Any) -> None:
    """Write a vector and facts about it."""
    with atomic(folder / NOTES / f"{name}.npy") as file:
        np.save(file, vector)
    with atomic(folder / NOTES / f"{name}.json", "w") as file:
        json.dump(facts, file)


def notes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the facts of all notes of a folder, in the order of their names."""
    return {file.stem: json.loads(file.read_text())
            for file in sorted((folder / NOTES).glob("*.json"))}
