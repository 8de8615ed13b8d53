"""Erase persons from a run: their rows, their names, and what was learned from them.

The rows go from ``data/``, and what the run wrote about persons in its folder, and copies of its
table in the cache. What was learned goes in one of two ways:

- exactly: saves that have seen one of the rows go, and the run is carried out again from the save
  before the first of them, else from its start. Memory and scores are then those of a run that
  never had the rows
- at once, of a method whose memory is sums (:meth:`fedvine.core.method.Method.counting`): all rows
  that are left are counted again, without scores. Counts, lists and sums are then those of a run
  that never had the rows; weights and choices stay as they were learned, and scores as they were

A killed erasure is finished by the same command: ``.erased/`` in the folder holds what is to be
put in place, and is written whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tomlkit

import fedvine
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder, cache_folder, clear_work, file_name
from fedvine.core.message import pack, unpack
from fedvine.data import handed
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.split import owning_node
from fedvine.data.stream import EventStream
from fedvine.experiments import nights, run_folder
from fedvine.experiments.answers import forget
from fedvine.experiments.prepare import FINAL
from fedvine.experiments.receipts import now, signed
from fedvine.experiments.run import Run, method_of, of_kept
from fedvine.experiments.run_files import (
    FORMAT,
    NIGHTS,
    PENDING,
    RECEIPTS,
    WRITTEN,
    read_object,
)
from fedvine.living import erased
from fedvine.living.news import Changed
from fedvine.living.rows import StoredRows

EXACT, AT_ONCE, CORRECTION = "exact", "at once", "correction"
# Of a run folder: what an erasure deletes, as it may name persons or rests on their rows.
TRIAL = ".trial"        # a copy of the folder, while a correction is tried
_RESTS = ("summary.json", "follow.json", WRITTEN, FINAL, ".auto", "clients.json", TRIAL)
_OWN = {"experiment.toml", "data", "saves", RECEIPTS}
_PLAN = ("stream", "parts", "plan", "by", "names", "seed", "clients", "grows", "graph")
LATER = ("The tables that are read next have to lack the rows; rows that come back are those of a "
         "new person.")


class Asked(NamedTuple):
    """An erasure that was prepared, and not begun: its rows, where it begins, what it may cost.

    - ``at_once``: whether it is done without learning again
    - ``rows``, ``clients``: number of rows, and of clients that have one
    - ``stage``: the first stage that is carried out again, from 0; ``stages`` of the plan
    - ``seconds``: about how long that takes; None where it is not known
    """

    at_once: bool
    rows: int
    clients: int
    stage: int
    stages: int
    seconds: float | None


def prepared(folder: str | os.PathLike[str], names: Mapping[str, Iterable[str]],
             exact: bool = False) -> Asked:
    """Return what the erasure of ``names`` (see :func:`fedvine.living.erased.marked`) would do.

    ``exact``: also where it could be done at once. Nothing is changed. Raises
    :class:`FedvineError` for names that the run does not know, and for a folder that keeps no rows.
    """
    kept = _opened(folder)
    gone = erased.marked(kept, names)
    split, _ = erased.without(kept, gone)
    save = _save_before(Path(folder), kept, split, gone)
    stage, stages = 0 if save is None else int(save[:6]) + 1, len(kept.plan)
    said = run_folder.read_summary(folder) or {}
    whole = said.get("seconds_total")
    return Asked(not exact and _ends(Path(folder), kept, split, gone) is not None,
                 int(gone.rows.sum()), _holding(kept, gone), stage, stages,
                 whole and whole * (stages - stage) / max(stages, 1))


def erase(folder: str | os.PathLike[str], names: Mapping[str, Iterable[str]] | None = None,
          exact: bool = False, carry: Callable[[Run], object] = Run.finish) -> Path:
    """Erase persons, at once or by carrying the run out again, and return the receipt's file.

    Args:
        folder: of the run.
        names: by "user", "item", "node" or "client"; None: finish an erasure that was stopped.
        exact: carry the run out again, also where it could be done at once.
        carry: carries out the run.

    Returns:
        The receipt, a signed JSON file in ``receipts/`` of the folder. It names nobody.

    Raises:
        FedvineError: as :func:`prepared`; where another process uses the run; and where there is
            nothing to finish, or something else is to be finished first.
    """
    place = Path(folder)
    with run_folder.alone(place):
        if names is None or (place / PENDING).exists():
            if names is not None:
                raise FedvineError(f"An erasure in {folder} was stopped on its way; give fedvine "
                                   f"erase {folder} without names first, which finishes it.")
            if not (place / PENDING).exists():
                raise FedvineError(f"No erasure in {folder} was stopped; say with --user, --item, "
                                   "--node or --client what to erase.")
        else:
            _begin(place, erased.canonical(names), exact)
        _put_in_place(place)
    draft = json.loads((place / PENDING / "receipt.json").read_text("utf-8"))
    began = time.monotonic()
    found = run_folder.read_experiment(place, PENDING)
    final = draft.pop("final")
    if draft["kind"] == AT_ONCE:
        for which, save in draft["save"].items():
            _count_again(place, found, which, save)
    else:
        carry(of_kept(place, found, out=place, final=final))
    draft |= {"done": now(), "seconds": round(time.monotonic() - began, 1)}
    draft["memory"]["after"] = run_folder.learned(place)
    receipt = place / RECEIPTS / f"{draft['asked'][:10]}-{draft['receipt'][:8]}.json"
    with atomic(receipt, "w") as file:
        json.dump(signed(draft), file, indent=1)
    shutil.rmtree(place / PENDING)
    return receipt


def _opened(folder: str | os.PathLike[str]) -> StoredRows:
    run_folder.read_experiment(folder)
    place = Path(folder) / "data"
    if not StoredRows.there(place):
        raise FedvineError(f"{folder} keeps no rows, so nobody can be taken out of what it "
                           "learned; delete it, and run again on a table without them.")
    return StoredRows.open(place)


def _holding(kept: StoredRows, gone: erased.Gone) -> int:
    """Return how many clients have a row that goes."""
    if isinstance(kept.split.stream, Graph):
        return sum(bool(gone.touched[part.nodes].any()) for part in kept.split.parts.values())
    split, rows = kept.split, np.flatnonzero(gone.touched)
    if split.owner is None:
        of = split.stream.codes.get(split.by)
        return 1 if of is None else len(set(of[rows].tolist()))
    return len(set(split.owner[owning_node(split.stream)[rows]].tolist()))


def correct(folder: str | os.PathLike[str], found: Changed, relearn: bool) -> None:
    """Take learned rows that changed in the table out of a run's rows, and what rests on them.

    ``relearn``: those with other values stay, with these. The run then goes on from the save before
    them.
    """
    place = Path(folder)
    with run_folder.alone(place):
        kept = StoredRows.open(place / "data")
        _write(place, *erased.corrected(kept, found, relearn), {"kind": CORRECTION})
        _put_in_place(place)
        shutil.rmtree(place / PENDING)


@contextlib.contextmanager
def trial(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a copy of a run's folder, of links to its files, inside it; delete it at the end."""
    place = Path(folder)
    copy = place / TRIAL

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:     # a disk without links
            shutil.copy2(source, target)
    try:
        shutil.rmtree(copy, ignore_errors=True)     # of a process that was killed
        shutil.copytree(place, copy, copy_function=link, ignore=shutil.ignore_patterns(
            ".lock", "follow.json", WRITTEN, TRIAL))
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _count_again(place: Path, found: dict[str, Any], which: str, name: str) -> None:
    """Make the memory of a save again from the rows that are left; what was learned stays.

    ``which``: ``"."`` for the run, or that of the model that answers, inside its folder.
    """
    folder = run_folder.RunFolder(place / which, None, unfinished=PENDING)
    with folder.alone():
        old = folder.restore(common={name})
        assert old is not None
        state = unpack(old.server)
        how = method_of(place, found).counting(old.t + 1, state["server"])
        assert how is not None
        made = of_kept(place, found, method=how.method, final=which == FINAL)
        if which == FINAL:
            assert made.on_all is not None
            made = made.on_all()
        next(stage for stage in made.unscored() if stage.t == old.t)
        memory = made.server
        assert memory is not None
        server = {**memory.dump(), **{key: state["server"][key] for key in how.server}}
        clients = {}
        for client, packed in made.clients.save(name).items():
            now, was = unpack(packed), unpack(old.clients[client])
            now["memory"] |= {key: was["memory"][key] for key in how.client}
            clients[client] = pack({**now, "place": was["place"]})
        state |= {"server": server, "clients": made.clients.dump()}
        folder.save(old._replace(server=pack(state), clients=clients))


def _begin(place: Path, names: Mapping[str, Iterable[str]], exact: bool) -> None:
    """Write what is left without persons, with the receipt's beginning."""
    kept = _opened(place)
    gone = erased.marked(kept, names)
    forget_copies(names)
    nights.forget(place, re.compile(_words(names)))
    _write(place, kept, gone, {"kind": EXACT if exact else AT_ONCE, "erased": {
        side: len(list(names[side])) for side in erased.SIDES if names.get(side)}})


def _write(place: Path, kept: StoredRows, gone: erased.Gone, said: dict[str, Any]) -> None:
    """Write all that is to be put in place, whole or not at all."""
    split, plan = erased.without(kept, gone)
    found = run_folder.read_experiment(place)
    save: Any = _ends(place, kept, split, gone) if said["kind"] == AT_ONCE else None
    if save is not None:    # the rows of a stage that it may have learned weights from
        said |= {"sampled_at_most": int(gone.rows.sum())}
        plan = kept.plan
    else:
        said |= {"kind": said["kind"].replace(AT_ONCE, EXACT)}
        save = _save_before(place, kept, split, gone)
    clients = found.get("split", {}).get("clients")
    facts = {key: value for key, value in kept.facts.items() if key not in _PLAN}
    facts |= {"read": None, "new": [], "erased": kept.facts.get("erased", 0) + 1}
    draft = {
        "format": 1, "receipt": secrets.token_hex(16), "asked": now(), "run": place.name,
        "fedvine": fedvine.__version__, "method": found["method"]["name"], **said,
        "rows": int(gone.touched.sum()), "clients": _holding(kept, gone),
        "rows_left": len(split.stream), "memory": {"before": run_folder.learned(place)},
        "again_from": 1 if save is None or said["kind"] == AT_ONCE else int(save[:6]) + 2,
        "stages": len(plan), "note": LATER, "save": save, "final": (place / FINAL).exists()}
    with atomic_folder(place / PENDING) as target:
        StoredRows.create(target / "data", split, plan, **facts)
        facts = found
        if clients is not None and not set(clients) <= set(split.parts) and kept.split.by:
            facts = _with_clients(found, [name for name in clients if name in split.parts])
        stages = json.loads(json.dumps(plan.facts()))
        if not plan.living and stages != found.get("stages"):   # other nodes are for the test
            facts = {**facts, "stages": stages}
        if facts != found:
            (target / "experiment.toml").write_text(tomlkit.dumps({"format": FORMAT, **facts}))
        (target / "receipt.json").write_text(json.dumps(draft))


def _with_clients(found: dict[str, Any], clients: list[str]) -> dict[str, Any]:
    """Return an experiment with these clients alone, wherever it names them."""
    made = json.loads(json.dumps(found))
    made["split"]["clients"] = clients
    asked = made["data"].get("experiment", {}).get("split", {})
    if asked.get("clients"):
        asked["clients"] = [name for name in asked["clients"] if name in clients]
    return made


def _put_in_place(place: Path) -> None:
    """Replace the rows, and delete what rests on the old ones; may be done again after a kill."""
    pending = place / PENDING
    draft = json.loads((pending / "receipt.json").read_text("utf-8"))
    if not (pending / "data").exists():     # all that follows was done
        return
    run_folder.tidy(place)
    if draft["kind"] == AT_ONCE:
        stay = ("summary.json", "clients.json", *([FINAL] if FINAL in draft["save"] else []))
        for which, save in draft["save"].items():
            drop(place / which, save, save, [name for name in _RESTS if name not in stay])
    else:
        drop(place, draft["save"])
    if (pending / "experiment.toml").exists():
        os.replace(pending / "experiment.toml", place / "experiment.toml")
    shutil.rmtree(place / "data", ignore_errors=True)
    os.replace(pending / "data", place / "data")
    left = {file_name(name) for name in StoredRows.open(place / "data").split.parts}
    for ledger in place.glob("noise/*.jsonl"):      # what has left stays spent
        if ledger.stem not in left:
            ledger.unlink()


def drop(place: Path, last: str | None = None, only: str = "", rests: Iterable[str] = _RESTS
         ) -> int:
    """Delete what a run learned after the save ``last``; return how many saves were deleted.

    ``last`` None: all that was learned, with the logs; ``only``: the one save that stays;
    ``rests``: other files. Experiment, rows and receipts stay.
    """
    for written in ("follow.json", WRITTEN):
        file = read_object(place / written).get("file")
        try:
            if isinstance(file, str) and handed.is_own(place, file):
                forget(file)
                continue
            why = "no run of yours in this folder wrote it"
        except (pa.ArrowException, OSError, ValueError, FedvineError) as error:
            why = f"it cannot be read: {error}"
        if file:
            warnings.warn(f"{file}, which {place / written} names, stays ({why}); delete it if it "
                          "is this run's.", stacklevel=2)
    for file in (*(place / name for name in rests),
                 *place.glob(f"{NIGHTS}/[0-9]*"), place / NIGHTS / "pieces"):    # its log stays
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
    saves = [save for save in place.glob("saves/*") if (
        save.name != only if only else last is None or save.name > last)]
    for save in saves:
        shutil.rmtree(save)
    for log in place.glob("me*.jsonl") if last is None else ():
        log.unlink()
    return len(saves)


def _save_before(place: Path, kept: StoredRows, split: Any, gone: erased.Gone) -> str | None:
    """Return the newest save of the end of a stage that knows no row which is to go.

    A stage is scored when the one before it was learned, so its rows are known by then. None where
    there is no such save, or names are numbered otherwise than in it.
    """
    last = erased.first_stage(kept, gone) - 1 - _lead(place)
    fits = [save.name for save in sorted(place.glob("saves/[0-9]*"))
            if int(save.name[:6]) <= last and read_object(save / "position.json").get("end")]
    if not fits or gone.client.any() or set(split.parts) != set(kept.split.parts):
        return None
    for name, part in kept.split.parts.items():
        if isinstance(part, Graph) or part.tables() or part.nodes is not None:
            return None
        known = part.before(kept.plan.bounds[int(fits[-1][:6]) + 1])
        for side in ("src", "dst"):
            ends = [known.src, known.dst] if not part.bipartite else [getattr(known, side)]
            most = max(int(end.max(initial=-1)) for end in ends) + 1
            ids: Ids = getattr(part, f"{side}_ids").take(np.arange(most))
            if not ids.starts(getattr(split.parts[name], f"{side}_ids")):
                return None
    return fits[-1]


def _ends(place: Path, kept: StoredRows, split: Any, gone: erased.Gone) -> dict[str, str] | None:
    """Return the newest save of the end of a stage, of the run and of the model that answers.

    They stand by the place of these in the folder. None where not all can be done at once.
    """
    found, fits = {}, not gone.client.any() and set(split.parts) == set(kept.split.parts)
    method = method_of(place, run_folder.read_experiment(place))
    for which in (".", *([FINAL] if (place / FINAL).exists() else [])):
        ends = [save for save in sorted(place.glob(f"{which}/saves/[0-9]*"))
                if read_object(save / "position.json").get("end")]
        if not ends or not fits or method.counting(int(ends[-1].name[:6]) + 1) is None:
            return None
        found[which] = ends[-1].name
    return found


def _lead(place: Path) -> int:
    """Return how many stages ahead a run's links are scored."""
    return int(run_folder.read_experiment(place).get("protocol", {}).get("lead", 1))


def forget_copies(names: Mapping[str, Iterable[str]]) -> None:
    """Delete the copies of tables in the cache that name somebody who is to be erased.

    Also all that reads which were killed have left there.
    """
    clear_work(cache_folder())
    wanted = [name for side in erased.SIDES for name in names.get(side, ())]
    for file in [*cache_folder().rglob("stream.json"), *cache_folder().rglob("graph.json")]:
        with contextlib.suppress(FedvineError, OSError):
            opened: Any = (EventStream if file.name == "stream.json" else Graph).open(file.parent)
            ids = [opened.names()] if isinstance(opened, Graph) else [
                opened.src_ids, opened.dst_ids, *(Ids.of(map(str, found)) for found in
                                                  opened.categories.values())]
            if any((one.numbers(wanted) >= 0).any() for one in ids):
                shutil.rmtree(file.parent)


def _words(names: Mapping[str, Iterable[str]]) -> str:
    """Return a pattern of names as whole words, as text and as JSON has them."""
    words = [re.escape(text) for found in erased.canonical(names).values()
             for name in found for text in {name, json.dumps(name)[1:-1]}]
    return rf"(?<![\w.-])(?:{'|'.join(words)})(?![\w-])"


def still_named(folder: str | os.PathLike[str], names: Mapping[str, Iterable[str]]) -> list[Path]:
    """Return files in a run folder that are not the run's own, and have one of the names in them.

    Names are looked for as whole words, as text and as JSON has them.
    """
    fits = re.compile(_words(names).encode())
    return [file for file in sorted(Path(folder).rglob("*"))
            if file.is_file() and not _OWN & set(file.relative_to(folder).parts)
            and fits.search(file.read_bytes())]
