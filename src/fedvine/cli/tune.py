"""The command that searches settings: of one method, or of every row of a paper's table."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedvine.cli import completion, options
from fedvine.cli.run import stopped_as_by_ctrl_c
from fedvine.core.errors import FedvineError, NotWritten

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment


@options.data_options(*options.OF_A_RUN)
def tune(
    what: Annotated[str, typer.Argument(
        metavar="METHOD[:KEY=VALUE]|TABLE", autocompletion=completion.tunable,
        help="A method's name or an experiment's file; fields that are set stay as they "
        "are. Or a paper's table, every row of which gets a search.")],
    values: options.Values,
    only: Annotated[str | None, typer.Option(
        help="Of a table only these experiments: numbers or parts of their names.")] = None,
    trials: Annotated[int | None, typer.Option(
        min=1, help="How many settings are tried [default: 12, or the table's].")] = None,
    seed: Annotated[int | None, typer.Option(
        help="The first seed of the search, 100 or more [default: 100, or the table's].")] = None,
    seeds: Annotated[int | None, typer.Option(
        min=1, help="How many seeds judge a setting, by their mean score [default: 3, or the "
        "table's].")] = None,
    score: Annotated[str | None, typer.Option(
        help="The validation score to search by [default: auc, am, f1_micro, by what the method "
        "answers for; or the table's].")] = None,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of the experiment; a method's field that is "
        "set is not searched.")] = None,
    budget: Annotated[str | None, typer.Option(
        help="Processor time after which the search stops, such as 60m; the same command goes "
        "on.")] = None,
    out: Annotated[Path | None, typer.Option(
        help="The search's folder [default: runs/tune/<method>-<data>-<digest>].")] = None,
    folder: Annotated[Path, typer.Option(
        "--folder", help="Where runs are made, as of compare.")] = Path("runs/cells"),
) -> None:
    """Search a method's settings on validation scores; the same command again goes on.

    A setting is taken where it is above the defaults in the mean over the same seeds. Writes
    experiment.toml with the chosen settings, for run and compare.
    """
    from fedvine.papers import published
    from fedvine.results import tune as tuning
    from fedvine.results.compare import experiments
    stopped_as_by_ctrl_c()
    ends = None if budget is None else clock.process_time() + options.seconds_of(budget)
    table: published.PaperTable | None = None
    wanted: list[tuple[str, Experiment]] = []
    if what in published.names():
        if values["data"]["source"] or out or settings:
            raise FedvineError("A table has its own data and settings; leave out --data, --set and "
                               "--out.")
        table = published.PaperTable.named(what)
        if (plan := table.tuned) is None:
            raise FedvineError(f"{what} takes no settings of searches: its file has no [tuned].")
        trials, seed, seeds, score = (trials or plan.trials, seed or plan.seed,
                                      seeds or plan.seeds, score or plan.score)
        same = (trials, seed, seeds, score) == (plan.trials, plan.seed, plan.seeds, plan.score)
        kept = 0
        for setting, row in ((s, r) for s in table.chosen(only) for r in table.row if r.method):
            experiment = table.plain(setting, row)
            if same and table.search(setting, row, folder) is not None:
                kept += 1
            elif tuning.searched(experiment.method):
                wanted.append((f"{row.name}, {setting.place}", experiment))
        if kept:
            options.tell(f"Rows with a finished search: {kept}.")
    else:
        if only:
            raise FedvineError("--only belongs to a table; leave it out.")
        wanted = [("", experiments([what], values, settings or [])[0])]
    for name, experiment in wanted:
        if name:
            options.tell(name)
        left = None if ends is None else max(ends - clock.process_time(), 0.0)
        try:
            found = tuning.tune(experiment, trials=trials or tuning.TRIALS,
                                seed=tuning.SEED if seed is None else seed,
                                seeds=seeds or tuning.SEEDS, score=score, out=out, folder=folder,
                                budget=left, tell=options.tell)
        except FedvineError as error:
            if table is None or isinstance(error, NotWritten):
                raise
            print(f"{name}: {error}")
            continue
        for line in found.search.comment():
            print(line)
        if found.left:
            print(f"{found.left} trials are left, the budget was spent; the same command goes on.")
        print(f"Chosen: {', '.join(f'{k} {v}' for k, v in found.search.fields.items())}; written "
              f"to {found.file}\n")
