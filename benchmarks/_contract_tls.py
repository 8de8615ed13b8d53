"""All methods as jobs of one running federation with TLS, a death on the way: one process's scores.

    scripts/bench contract-tls [METHOD ...]

Three sites join for each family with tables of their own: of links, of labelled graphs, and none,
where the server holds the graph. In the first run of each family all of a site is killed (kill -9)
and started again. Without names all methods run, a good quarter of a minute each.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import tomlkit

from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.data.plan import by_time
from fedvine.data.spec import Data
from fedvine.data.split import Split
from fedvine.experiments.run import run
from fedvine.federation import kits as kits
from fedvine.federation import roster, tied
from fedvine.federation.demo import fedvine, kill
from fedvine.federation.launch import read_order
from fedvine.federation.supervisor import Supervisor
from fedvine.tasks.task import of
from fedvine.tasks.task_plan import TaskSettings, of_classes
from fedvine.tasks.tiny import NAMES, tiny_case, tiny_graphs

SAME = {"seed": 7, "deadline": 120.0, "silence": 15.0, "save_every": 0.0, "forecasts": 2}
GRAPH = {"source": "synthetic", "options": {"steps": 24, "rate": 30.0}}
FAMILIES = ("links", "graphs", "none")
NOISY = {"fedsage_dyn", "fedsage_plus"}     # draw noise of the operating system: no two runs equal


def family(method: Any) -> str:
    """Return where a method's data lie."""
    return ("graphs" if of(method).data == "graph" else
            "none" if method.server_holds_graph else "links")


def chosen(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the methods with their smallest constants; those that learn classes too as both."""
    for name in names or sorted(registry.methods()):
        kind: Any = registry.method(name)
        yield name, kind.tiny()
        target = kind.model_fields.get("target")
        if target is not None and "classes" in str(target.annotation):
            yield f"{name}-classes", kind.tiny().model_copy(update={"target": "classes"})


def options(folder: Path, of_family: str) -> dict[str, list[str]]:
    """Write the sites' tables of a family; return each site's options of ``fedvine join``."""
    if of_family == "none":
        return {name: [] for name in NAMES}
    made = {}
    if of_family == "links":
        for name, part in tiny_case()[0].parts.items():
            pd.DataFrame({"user": [part.src_ids[i] for i in part.src],
                          "item": [part.dst_ids[i] for i in part.dst], "t": part.t}).to_csv(
                folder / f"{name}.csv", index=False)
            made[name] = ["--data", str(folder / f"{name}.csv"), "--src", "user", "--dst", "item",
                          "--time", "t"]
        return made
    graphs: dict[str, Any] = tiny_graphs()[0].parts  # type: ignore[assignment]
    for name, part in graphs.items():
        nodes, edges = folder / f"{name}-nodes.parquet", folder / f"{name}-edges.csv"
        pd.DataFrame({"id": part.nodes, **{f"x{i}": part.x[:, i] for i in range(part.features)},
                      "label": [part.classes[c] if c >= 0 else None for c in part.y]}).to_parquet(
            nodes, index=False)
        pd.DataFrame(part.nodes[part.edges].T, columns=["src", "dst"]).to_csv(edges, index=False)
        made[name] = ["--data", str(nodes), "--edges", str(edges), "--open-classes"]
    return made


def settings(method: Any) -> dict[str, Any]:
    """Return the experiment of a method, for a federation."""
    name = {"name": method.name, **method.model_dump(mode="json", exclude_none=True)}
    found = {"links": {"stages": "1000", "val": 0.25, "test": 0.25,
                       "protocol": testing.PROTOCOL.model_dump()},
             "graphs": {"stages": 2, "class_names": "open",
                        "tasks": {"shares": [0.5, 0.2, 0.3], "keep_inter_task_edges": False}},
             "none": {"data": GRAPH, "stages": "6", "protocol": of(method).tiny().model_dump()}}
    return {**SAME, **found[family(method)], "method": name}


def in_one_process(method: Any) -> dict[str, Any]:
    """Return the scores of the same run in this process."""
    if family(method) == "none":
        stream = Data.model_validate(GRAPH).open()
        parts = dict(zip(NAMES, stream.split("region").parts.values(), strict=True))
        return run(method, Split(parts, stream, "hand"), by_time(stream, "6"), seed=7,
                   protocol=of(method).tiny()).finish().scores
    if family(method) == "links":
        split = tiny_case()[0]
        return run(method, split, by_time(split.stream, 1000.0, val=0.25, test=0.25), seed=7,
                   protocol=testing.PROTOCOL).finish().scores
    split, _ = tiny_graphs()
    settings = TaskSettings(shares=(0.5, 0.2, 0.3), keep_inter_task_edges=False)
    plan = of_classes(8, "tiny", 2, settings, seed=7)
    named = replace(split, parts={name: replace(part, name=f"federation/{name}")
                                  for name, part in split.parts.items()})
    return run(method, named, plan, seed=7).finish().scores


class Sites:
    """``fedvine join`` for each site, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.options = folder, dict[str, list[str]]()
        self.processes: dict[str, Any] = {}

    def join(self, name: str) -> None:
        """Start a site."""
        kit = self.folder / "kits" / name
        self.processes[name] = fedvine("join", str(kit), *self.options[name], "--any-method",
                                       kit=kit,
                                       log=self.folder / f"{name}.log")

    def have(self, options: dict[str, list[str]]) -> None:
        """Let all sites leave, and join with other tables."""
        self.stop()
        self.options = options
        for name in options:
            (self.folder / "kits" / name / "site.toml").unlink(missing_ok=True)
            self.join(name)

    def dies(self, out: Path) -> None:
        """Kill a site when a stage has been learned, and start it again."""
        until = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.02)
        kill(self.processes["bob"], self.folder / "kits" / "bob")
        self.join("bob")

    def stop(self) -> None:
        """End all sites."""
        for process in self.processes.values():
            tied.stop(process)


def main(names: list[str]) -> bool:
    """Print a line a method; return whether all scores are those of one process."""
    methods, wrong, began = dict(chosen(names)), [], time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, sites = Path(name), Sites(Path(name))
        made = kits.local(folder / "kits", list(NAMES))
        known = dict(roster.own_line(made[n]).split() for n in NAMES)
        for n in NAMES:
            roster.keep(made[n], known)
        try:
            with Supervisor(folder / "kits", lambda text: None, patience=240) as supervisor:
                for kind in FAMILIES:
                    these = {n: m for n, m in methods.items() if family(m) == kind}
                    if these:
                        sites.have(options(folder, kind))
                    for number, (title, method) in enumerate(these.items()):
                        out, start = folder / title, time.monotonic()
                        file = folder / f"{title}.toml"
                        file.write_text(tomlkit.dumps(settings(method)))
                        dying = threading.Thread(target=sites.dies, args=(out,))
                        if not number:
                            dying.start()
                        why = ""
                        try:
                            supervisor.go(read_order(file, out), len(NAMES))
                        except FedvineError as error:       # the others are run, too
                            why = str(error)
                        if not number:
                            dying.join()
                        noisy = method.name in NOISY
                        same = not why and (noisy or json.loads(
                            (out / "summary.json").read_text())["scores"] == json.loads(
                                json.dumps(in_one_process(method))))
                        wrong += [] if same else [title]
                        print(f"{title:24} {kind:7} {time.monotonic() - start:4.0f} s  "
                              f"{'' if number else 'a site died  '}"
                              f"{why or ('identical' if same else 'DIFFERENT') * (not noisy)}"
                              f"{'finished; its noise differs' if noisy and same else ''}",
                              flush=True)
        finally:
            sites.stop()
    print(f"{len(methods) - len(wrong)} of {len(methods)} as they must be, "
          f"{time.monotonic() - began:.0f} s" + (f"; NOT {', '.join(wrong)}" if wrong else ""))
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
