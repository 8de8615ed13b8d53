"""Clients on the workers of a Ray cluster: ``scripts/bench ray [--markdown DIR]``; needs the extra.

    --rounds N       rounds that are timed (5)
    --busy           let steps compute, too; on a machine without other work
    --clients N      clients of the long run of FedLink (0: leave it out), 1,000 edges each
    --flower PYTHON  an interpreter with flwr[simulation], whose rounds are timed beside ours
    --markdown DIR   write the page ray.md

Steps of 50 ms at 100 clients, who get a model of 1 MB and send 40 kB: seconds a round in one
process and with two workers. The steps wait, so that other work on the machine does not count; with
--busy others compute for as long on the processor's clock. Then the same without steps: what a
client and round costs beside its arithmetic, in one process, with two workers, in Flower's
simulation with two workers, and with a bare Ray actor for each of 16 clients, which is a process a
client.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedvine.core.expect import Array
from fedvine.core.files import atomic
from fedvine.core.method import Field, Method, Server, on_client
from fedvine.core.units import size
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.split import Split, split
from fedvine.data.stream import EventStream
from fedvine.engines.cluster import RayClients, cluster
from fedvine.engines.local import LocalClients
from fedvine.experiments.run import run
from fedvine.experiments.summary import peak_memory
from fedvine.methods.fedlink import FedLink
from fedvine.results.tables import Table
from fedvine.tasks.link_prediction import LinkPrediction

CLIENTS, ACTORS, STEP = 100, 16, 0.05
DOWN, UP = 250_000, 10_000      # float32 numbers


class Unscored(LinkPrediction):
    """A protocol that scores nothing."""

    def scored(self, t: int, stages: int) -> list[int]:
        return []


class Steps(Method):
    """Each client computes for some time and sends numbers."""

    name: ClassVar[str] = "bench_steps"
    rounds: int = Field(5, description="rounds a stage")
    seconds: float = Field(STEP, description="a step")
    busy: bool = Field(False, description="compute, in place of waiting")

    def start(self, world):
        return Server(model=np.zeros(DOWN, np.float32), sum=np.zeros(UP, np.float32))

    def round(self, server, clients, at):
        def fold(name: str, reply: np.ndarray) -> None:
            server.sum = server.sum + reply
        clients.call(self.step, server.model, fold=fold, expect=Array("float32", (UP,)))

    @on_client
    def step(self, client, model):
        return step(model, self.seconds, self.busy)


def step(model: np.ndarray, seconds: float = 0.0, busy: bool = False) -> np.ndarray:
    """Wait so long, or compute for so long on the processor's clock; return numbers."""
    end = time.process_time() + seconds
    while busy and time.process_time() < end:
        np.sqrt(model)
    if not busy:
        time.sleep(seconds)
    return model[:UP] + 1


def world(clients: int, edges: int) -> tuple[Split, Plan]:
    """Return a split stream, so many edges a client, of two stages."""
    draw, count = np.random.default_rng(1), clients * edges
    users, items = max(count // 50, 10), max(count // 500, 10)
    stream = EventStream(
        draw.integers(0, users, count).astype(np.int32),
        draw.integers(0, items, count).astype(np.int32), np.arange(count),
        Ids.of(np.arange(users)), Ids.of(np.arange(items)), name="cluster",
        codes={"client": (np.arange(count) % clients).astype(np.int32)},
        categories={"client": [f"c{i:05d}" for i in range(clients)]})
    return split(stream, "client"), Plan((0.0, count / 2, float(count)), 2, 2)


def seconds_a_round(method: Steps, engine: Any, **options: Any) -> tuple[float, bytes]:
    """Return the median seconds of a round, and the sum at the server."""
    clock, found = [time.perf_counter()], []

    def on_round(at: Any, clients: Any) -> None:
        found.append(time.perf_counter() - clock[0])
        clock[0] = time.perf_counter()

    made = run(method, *world(CLIENTS, 10), protocol=Unscored(), engine=engine, on_round=on_round,
               **options)
    clock[0] = time.perf_counter()
    made.finish()
    if isinstance(made.clients, RayClients):
        made.clients.close()
    assert made.server is not None
    return statistics.median(found[1:method.rounds + 1]), made.server.sum.tobytes()


def bare(ray: Any, rounds: int) -> tuple[float, float]:
    """Return seconds a round of a Ray actor a client without steps, and bytes of one process."""
    class One:
        def step(self, model: np.ndarray) -> np.ndarray:
            return step(model.copy())

        def held(self) -> int:
            return own_memory(os.getpid())

    actors = [ray.remote(num_cpus=0)(One).remote() for _ in range(ACTORS)]
    held = ray.get([actor.held.remote() for actor in actors])
    found = []
    for _ in range(rounds):
        began, total = time.perf_counter(), np.zeros(UP, np.float32)
        model = ray.put(np.zeros(DOWN, np.float32))
        for reply in ray.get([actor.step.remote(model) for actor in actors]):
            total = total + reply
        found.append(time.perf_counter() - began)
    for actor in actors:
        ray.kill(actor)
    return statistics.median(found), statistics.median(held)


def flower(python: str, rounds: int) -> tuple[float, str]:
    """Return the median seconds of Flower's rounds after the first one, and its version."""
    done = subprocess.run([python, "-m", "benchmarks._flower_rounds", str(CLIENTS),
                           str(rounds + 1)], stdout=subprocess.PIPE, text=True, check=True,
                          cwd=Path(__file__).parent.parent)
    found = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(found["seconds"][1:]), found["flwr"]


def own_memory(process: int) -> int:
    """Return the bytes that no other process shares with this one, and its part of others."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def many(clients: int, engine: Any, **options: Any) -> dict[str, Any]:
    """Return time and memory of one round of FedLink in each of two stages."""
    parts, plan = world(clients, 1000)
    began = time.perf_counter()
    made = run(FedLink(rounds=1, capacity=100, width=16), parts, plan, protocol=Unscored(),
               engine=engine, **options)
    ready = time.perf_counter()
    made.finish()
    workers = made.clients.processes() if isinstance(made.clients, RayClients) else []
    found = {"start": ready - began, "run": time.perf_counter() - ready,
             "server": peak_memory(), "workers": [own_memory(p) for p in workers]}
    if isinstance(made.clients, RayClients):
        made.clients.close()
    return found


def main(say: Callable[[str], object] = print) -> None:
    """Measure, print, and write the page if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--flower")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    ray = cluster(None, 2)
    rows = []
    kinds = [(STEP, False), *([(STEP, True)] if given.busy else []), (0.0, False)]
    for seconds, busy in kinds:
        method = Steps(rounds=given.rounds, seconds=seconds, busy=busy)
        times, sums = [], []
        for engine, options in ((LocalClients, {}), (RayClients, {"workers": 2})):
            found, total = seconds_a_round(method, engine, **options)
            times.append(found)
            sums.append(total)
            say(f"{method!r} {engine.__name__} {found:.3f} s a round")
        assert sums[0] == sums[1], "The sums differ."
        rows.append(times)
    each, memory = bare(ray, given.rounds)
    say(f"bare actors: {each / ACTORS * 1e3:.3f} ms a client and round, {size(memory)} each")
    others = [["a bare Ray actor a client", f"{each / ACTORS * 1e3:.2f}", f"{ACTORS + 1}"]]
    if given.flower:
        theirs, version = flower(given.flower, given.rounds)
        say(f"Flower {version}: {theirs:.3f} s a round")
        others.insert(0, [f"Flower {version}, two workers", f"{theirs / CLIENTS * 1e3:.2f}", "3"])
    *steps, (none, cost) = rows
    parts = [PAGE, Table("Seconds a round", [
        "steps", "one process", "two workers", "times faster"], [[
            name, f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}"] for name, (one, two) in zip(
                ("wait 50 ms", "compute 50 ms"), steps, strict=False)]).markdown(),
        Table("Milliseconds a client and round without steps", [
            "", "ms", "processes"], [
            ["one process", f"{none / CLIENTS * 1e3:.2f}", "1"],
            ["two workers", f"{cost / CLIENTS * 1e3:.2f}", "3"],
            *others]).markdown(),
        f"A bare actor's process holds {size(memory)} without any data. Load of the machine at the "
        f"end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors."]
    if given.clients:
        long = many(given.clients, RayClients, workers=2)
        parts.append(f"FedLink (width 16, 100 edges a buffer), {given.clients:,} clients of 1,000 "
                     f"edges, two stages of one round, two workers: {long['start']:.0f} s until "
                     f"the clients are there, {long['run']:.0f} s for the run; memory at the end "
                     f"{' and '.join(size(m) for m in long['workers'])} at the workers, at most "
                     f"{size(long['server'])} at the server's process, which holds the stream.")
    say(parts[-1])
    if given.markdown:
        with atomic(given.markdown / "ray.md") as file:
            file.write(("\n\n".join(parts) + "\n").encode())


PAGE = """# Clients on a Ray cluster

`scripts/bench ray`: 100 clients who get a model of 1 MB and send 40 kB a round, in one process and
with `engine = "ray"` and two workers on the same machine; the sums at the server are the same, byte
for byte. Steps that wait show what the engine costs whatever else the machine does; steps that
compute (`--busy`) gain as many processors as are free. Medians of rounds."""


if __name__ == "__main__":
    main()
