"""False updates against every rule: ``scripts/bench poisoning [--out FILE] [--fallback]``.

Of 5 clients one, of 7 two, send false updates in every round; scores are means over the others.
FedLink on the first 10,000 flights, POWER on Cora in two tasks of three classes, one seed each.
Sums of ``fedlink_plus``, on all flights, and of ``power_plus`` have no rule: a client falls back on
its own weights.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedvine as fv
from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.core import tree
from fedvine.core.files import atomic
from fedvine.core.message import pack, unpack
from fedvine.core.rng import torch_rng
from fedvine.data.split import Split
from fedvine.engines.local import LocalClients
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.task_plan import by_task

RULES = ("mean", "clip", "median", "trimmed", "krum")
ATTACKS = ("nothing", "scale by -1000", "flip signs", "send noise", "flip labels")
OF_SUMS = "derive", "classes", "products", "judge"
Change = Callable[[torch.Tensor, int], torch.Tensor]
CHANGES: dict[str, Change] = {
    "scale by -1000": lambda x, at: -1000.0 * x,
    "flip signs": lambda x, at: -x,
    "send noise": lambda x, at: torch.randn(x.shape, generator=torch_rng("noise", at)).to(x)}
SUMS: dict[str, Change] = {      # of derivatives: numbers up to 2^30
    **CHANGES, "send noise": lambda x, at: x.abs().mean() * torch.randn(
        x.shape, generator=torch_rng("noise", at)).to(x),
    "edge of the fixed point": lambda x, at: 2.0 ** 30 * torch.sign(torch.randn(
        x.shape, generator=torch_rng("edge", at))).to(x)}


def attacked(false: tuple[str, ...], attack: str) -> type[LocalClients]:
    """Return an engine in which the clients ``false`` change what they send."""
    class Attacked(LocalClients):
        """Clients of which some send false updates."""

        def _deliver(self, name: str, envelope: Any) -> Any:
            reply = super()._deliver(name, envelope)
            if name in false and attack in SUMS and envelope.function in OF_SUMS:
                found = torch.from_numpy(from_fixed(unpack(reply)))
                found = SUMS[attack](found, envelope.place[0] * 1000 + envelope.place[1])
                return pack(to_fixed(found.clamp(-2.0 ** 30, 2.0 ** 30).numpy()))
            if (name not in false or attack not in CHANGES or reply is None
                    or envelope.function not in ("train", "execute", "learn")):
                return reply
            sent, place = unpack(reply), envelope.place[0] * 1000 + envelope.place[1]
            if "size" in sent:      # a model, and not its change
                began = unpack(envelope.body)[0]
                change = tree.subtract(sent["model"], began)
                sent["model"] = tree.add(began, altered(change, attack, place))
                return pack(sent)
            return pack(altered(sent, attack, place))
    return Attacked


def altered(sent: Any, attack: str, place: int) -> Any:
    """Return a tree of differences as an attacker sends it."""
    return tree.map_tree(lambda x: CHANGES[attack](x, place), sent)


@functools.cache
def flights() -> Any:
    """Return the first 10,000 flights of the year."""
    return fv.load("flights").take(np.arange(10_000))


def links(clients: int, false: int, attack: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Return flights of so many clients, the plan, and the attackers."""
    stream = flights()
    split = stream.split(by="hash", k=clients)
    names = tuple(sorted(split.parts)[:false])
    if attack == "flip labels":     # pairs that never were
        for name in names:
            part = split.parts[name]
            part.dst[:] = torch.randint(0, part.num_dst, (len(part),), generator=torch_rng(
                "labels", name)).numpy().astype(part.dst.dtype)
    assert isinstance(split, Split)
    return split, stream.by_count(2_500), names


def graphs(clients: int, false: int, attack: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Return Cora among so many clients, the plan of tasks, and the attackers."""
    graph = fv.load("cora")
    split = graph.split(by="louvain", k=clients, seed=0)
    names = tuple(sorted(split.parts)[:false])
    if attack == "flip labels":
        parts = {n: replace(p, y=np.where(p.y >= 0, len(p.classes) - 1 - p.y, -1))
                 if n in names else p for n, p in split.parts.items()}
        split = replace(split, parts=parts)
    return split, by_task(graph, 3, seed=0), names


def score(kind: str, clients: int, false: int, attack: str, rule: str) -> float:
    """Return the mean test score of the clients that are not ``false``: AUC, or AM in percent."""
    case, key = (links, "auc") if kind == "fedlink" else (graphs, "am")
    split, plan, names = case(clients, false, attack)
    given = {"aggregate": {"rule": rule, "attackers": false}}
    method = (FedLink(rounds=3, capacity=1000, width=16, **given) if kind == "fedlink" else
              Power(rounds=5, answers="global", **given))
    made = fv.run(method, split, plan, seed=0, engine=attacked(names, attack)).finish()
    by_client = made.scores["test"]["client"]
    found = [s[key] for n, s in by_client.items() if n not in names and key in s]
    return float(np.mean(found))


def fallen_back(kind: str, clients: int, false: int, attack: str) -> str:
    """Return honest clients' scores: each alone, of all without and with its fall-back."""
    split: Any
    if kind == "fedlink_plus":
        stream = fv.load("flights")
        split, plan, key = stream.split(by="hash", k=clients), stream.by_time("30d"), "auc"
        made: Any = functools.partial(FedLinkPlus, share="none")
    else:
        split, plan, _ = graphs(clients, 0, attack)
        key, made = "am", PowerPlus
    names = tuple(sorted(split.parts)[:false])
    honest = [n for n in split.parts if n not in names]

    def score(method: Any, parts: Any, engine: Any = LocalClients) -> float:
        found = fv.run(method, parts, plan, seed=0, engine=engine).finish()
        by_client = found.scores["test"]["client"]
        return float(np.mean([by_client[n][key] for n in honest if n in by_client]))

    alone = np.mean([score(made(), replace(split, parts={n: split.parts[n]})) for n in honest])
    both = [score(made(fallback=back), split, attacked(names, attack)) for back in (False, True)]
    digits = 3 if key == "auc" else 1
    return " | ".join(f"{value:.{digits}f}" for value in (alone, *both))


HEAD = """# False updates: what an attacker does to the scores of the others

Made by `scripts/bench poisoning --out docs/results/poisoning.md`. Flights (the first 10,000 in
the tables of rules, all in those of fall-back) and Cora among 5 clients of which one attacks, and 7
of which two do; scores are means over the clients that do not. *Each alone* is a run of each of
them without others. One seed each: differences of a few points between rules on Cora are chance.
What the rules do: [false updates](../explanation-privacy.md#false-updates).
""".splitlines()


def main() -> None:
    """Print the tables, or write a page of them to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write a page of the tables to FILE")
    parser.add_argument("--fallback", action="store_true", help="those of fall-back alone")
    given, lines = parser.parse_args(), []
    torch.set_num_threads(1)
    for kind, title, digits in () if given.fallback else (
            ("fedlink", "FedLink on flights: AUC", 3), ("power", "POWER on Cora: AM", 1)):
        lines += [f"**{title} of the clients that do not attack**", "",
                  f"| attack | attackers | {' | '.join(RULES)} |",
                  f"|---|---|{'---:|' * len(RULES)}"]
        for clients, false in ((5, 1), (7, 2)):
            for attack in ATTACKS:
                row = [f"{score(kind, clients, false, attack, rule):.{digits}f}" for rule in RULES]
                lines.append(f"| {attack} | {false} of {clients} | {' | '.join(row)} |")
                print(lines[-1], flush=True)
        lines.append("")
    for kind, title in (("fedlink_plus", "fedlink_plus on flights: AUC"),
                        ("power_plus", "power_plus on Cora: AM")):
        lines += [f"**{title} of the clients that do not attack**", "",
                  "| attack | attackers | each alone | without fall-back | with it |",
                  "|---|---|---:|---:|---:|"]
        for clients, false in ((5, 1), (7, 2)):
            for attack in ("nothing", *SUMS):
                lines.append(f"| {attack} | {false} of {clients} | "
                             f"{fallen_back(kind, clients, false, attack)} |")
                print(lines[-1], flush=True)
        lines.append("")
    if given.out:
        with atomic(given.out, "w") as out:
            out.write("\n".join([*HEAD, *lines]).rstrip() + "\n")


if __name__ == "__main__":
    main()
