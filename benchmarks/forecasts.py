"""fedlink_plus beside FedLink and STFL: CPU seconds, bytes, memory, and what grows with history.

Every run is a process of its own with one thread, and its seconds are CPU seconds of the run, with
scores and saves, without imports. Lines with "ours" and "other":

- flights and Foursquare: ours beside FedLink and STFL
- a stage after a history ten times as long, with a fixed capacity, beside the short one
- what a round adds, beside 0.81 CPU seconds of FedGraph 0.2.5 on Foursquare with four countries
- a ``fedvine predict`` from nothing to the answer, beside 2 CPU seconds
- a client of 300,000 users, beside FedLink with one step a stage
- four cities, with saves and without, beside 40 CPU seconds and 800 MB
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.living import carried_out

DATA, METHODS = ("flights", "foursquare"), ("fedlink_plus", "fedlink", "stfl")
CAPACITY, TIMES, LAST = 4_000, 10, 10
SHORT = 60      # stages; what a full table keeps, and so its cost, grows until about the fiftieth
FEDGRAPH, PREDICT = 0.81, 2.0
CITIES = 40.0, 800.0


def costs(data: str, method: str, out: str) -> dict[str, Any]:
    """Carry out a run of a data set with shipped defaults; return its costs.

    ``out`` is its folder; "": it is in memory, and nothing is saved.
    """
    from fedvine.experiments.experiment import Experiment
    spent, began = [], [0.0]

    def on_round(at: Any, clients: Any) -> None:
        now = time.process_time()
        if at.r and any((line["t"], line["r"]) == (at.t, at.r) for line in clients.log):
            spent.append(now - began[0])        # after the last Newton step nothing is computed
        began[0] = now

    made = Experiment.model_validate({"data": data, "method": {"name": method}})
    done = made.run(out=Path(out) if out else None, on_round=on_round)
    done.finish()
    found = done.summary or {}
    client, part = next(iter(done.parts.items()))
    return {"asked": [client, str(part.src_ids[int(part.src[0])])],
            "cpu": found["seconds_cpu"], "MB": (found["bytes_up"] + found["bytes_down"]) / 1e6,
            "rounds": len(spent), "round": statistics.mean(spent)}


def grown(stages: int) -> dict[str, Any]:
    """Return the median CPU seconds of the last stages of a stationary stream of so many."""
    import numpy as np

    from benchmarks.longer import CLIENTS, ITEMS, STAGE, USERS, Unscored
    from fedvine.core.rng import rng
    from fedvine.data.ids import Ids
    from fedvine.data.plan import Plan
    from fedvine.data.stream import EventStream
    from fedvine.experiments.run import run
    from fedvine.methods.fedlink_plus import FedLinkPlus
    draw, count = rng(0, "forecasts"), STAGE * stages
    src = (USERS * draw.random(count) ** 2).astype(np.int32)
    dst = (ITEMS * draw.random(count) ** 3).astype(np.int32)
    stream = EventStream(src, dst, np.arange(count), Ids.of(np.arange(USERS)),
                         Ids.of(np.arange(ITEMS)), categories={"client": list("abc")},
                         codes={"client": (dst % CLIENTS).astype(np.int32)})
    plan = Plan(tuple(float(STAGE * i) for i in range(stages + 1)), stages, stages)
    clock, each = [time.process_time()], []
    for _ in run(FedLinkPlus(capacity=CAPACITY), stream.split("client"), plan,
                 protocol=Unscored()):
        clock.append(time.process_time())
        each.append(clock[-1] - clock[-2])
    return {"stage": statistics.median(each[-LAST:])}


def many_users(method: str) -> dict[str, Any]:
    """Carry out a run with a client of 300,000 users; return its CPU seconds."""
    from benchmarks import ask
    from fedvine.core import registry
    from fedvine.experiments.run import run
    stream = ask.world()
    done = run(registry.method(method)(**ask.METHODS.get(method, {})), stream.split("region"),
               stream.by_count(ask.EDGES // 4))
    done.finish()
    return {"cpu": (done.summary or {})["seconds_cpu"]}


def apart(what: str, *words: object) -> dict[str, Any]:
    """Return what a function above finds in a process of its own, and its peak memory in bytes."""
    made = carried_out([sys.executable, "-m", "benchmarks.forecasts", what, *map(str, words)])
    return {"process": made["cpu"], "memory": made["memory"],
            **json.loads(made["said"].strip().splitlines()[-1])}


def line(name: str, ours: float, other: float, goal: str = "") -> dict[str, Any]:
    """Return a line of the table; there is no floor."""
    return {"name": name, "ours": ours, "other": other, "ratio": ours / other, "floor": 0.0,
            "goal": goal}


def measure() -> Iterator[dict[str, Any]]:
    """Yield the lines."""
    with tempfile.TemporaryDirectory() as name:
        found = {(d, m): apart("costs", d, m, f"{name}/{d}-{m}") for d in DATA for m in METHODS}
        for data in DATA:
            ours = found[data, METHODS[0]]
            for other in METHODS[1:]:
                it = found[data, other]
                yield line(f"{data}, {other}: CPU seconds", ours["cpu"], it["cpu"])
                yield line(f"{data}, {other}: MB sent", ours["MB"], it["MB"])
                yield line(f"{data}, {other}: peak memory, MB", ours["memory"] / 1e6,
                           it["memory"] / 1e6)
        yield line("foursquare, FedGraph: CPU seconds of a round",
                   found["foursquare", METHODS[0]]["round"], FEDGRAPH)
        client, user = found["foursquare", METHODS[0]]["asked"]
        asked = carried_out([sys.executable, "-m", "fedvine", "predict", f"{name}/foursquare-"
                             f"{METHODS[0]}", "--client", client, "--user", user])
        yield line("predict, from nothing: CPU seconds", asked["cpu"], PREDICT, "ours at most 1.2")
    short, long = (apart("grown", stages) for stages in (SHORT, SHORT * TIMES))
    yield line(f"history x {TIMES}: CPU seconds of a stage", long["stage"], short["stage"],
               "ratio at most 1.05")
    yield line(f"history x {TIMES}: peak memory, MB", long["memory"] / 1e6, short["memory"] / 1e6)
    ours, other = (apart("many_users", m) for m in METHODS[:2])
    yield line("300,000 users: CPU seconds", ours["cpu"], other["cpu"])
    yield line("300,000 users: peak memory, MB", ours["memory"] / 1e6, other["memory"] / 1e6)
    with tempfile.TemporaryDirectory() as name:
        cities = apart("costs", "four_cities", METHODS[0], f"{name}/run")
    yield line("four cities: CPU seconds", cities["cpu"], CITIES[0], "ours at most 20")
    alone = apart("costs", "four_cities", METHODS[0], "")
    yield line("four cities, without saves: CPU seconds", alone["cpu"], CITIES[0])
    yield line("four cities: peak memory, MB", cities["memory"] / 1e6, CITIES[1])


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "grown":
        print(json.dumps(grown(int(words[0]))))
    else:
        print(json.dumps({"costs": costs, "many_users": many_users}[what](*words)))
