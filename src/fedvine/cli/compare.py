"""The commands that set runs side by side, and those about finished ones: compare to cite."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedvine.cli import completion, options
from fedvine.cli.run import stopped_as_by_ctrl_c
from fedvine.core.errors import FedvineError, NotWritten

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment

@options.data_options(*options.OF_A_RUN)
def compare(
    methods: Annotated[list[str], typer.Argument(
        metavar="METHOD[:KEY=VALUE]...", autocompletion=completion.methods,
        help="Methods' names or experiments' files, each with settings of its own if need be, "
        "such as fedlink:capacity=1000:rounds=5.")],
    values: options.Values,
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    seeds: options.Seeds = None,
    partitions: Annotated[int | None, typer.Option(
        min=1, help="Run each seed on so many partitions of a labelled graph.")] = None,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of all the experiments; may be given several "
        "times.")] = None,
    budget: options.Budget = None,
    jobs: options.Jobs = 1,
    folder: options.Folder = Path("runs/cells"),
    plot: options.Plot = None,
    markdown: options.Markdown = None,
    table: options.Table = None,
    json: options.Json = None,
) -> None:
    """Compare methods on the same data and seeds: scores with intervals, paired tests, costs."""
    from fedvine.results import compare as comparing
    stopped_as_by_ctrl_c()
    for file in (markdown, json, table):        # before anything is run
        if file is not None and file.is_dir():
            raise FedvineError(f"{file} is a folder; name a file.")
    wanted = comparing.experiments(methods, {**values, "seed": seed}, settings or [])
    source = wanted[0].data
    if not source.edges and (source.weight or source.features or not source.dataset):
        from fedvine.experiments.prepare import unused
        stream = source.open()
        notes = [note for one in wanted for note in unused(one.method, stream.edge_columns)]
        for note in (*(() if source.dataset else stream.notes), *notes):
            options.tell(f"Note: {note}")
    found = comparing.compare(wanted, seeds, folder, jobs=jobs, tell=options.tell,
                              partitions=partitions,
                              budget=options.seconds_of(budget) if budget else None)
    _show(found.sheet(), markdown, json, table=table)
    if plot:
        from fedvine.results.comparison import chart
        chart(found, plot)


def reproduce(
    name: Annotated[str, typer.Argument(
        autocompletion=completion.pages,
        help="A paper's table or figure, such as fedlink-table1; tgb-wiki; or all.")],
    only: Annotated[str | None, typer.Option(
        help="Only these experiments: numbers or parts of their names, with commas.")] = None,
    seeds: options.Seeds = None,
    budget: options.Budget = None,
    cap: Annotated[str, typer.Option(help="Processor time that all runs of a page may take, "
        "with the finished ones.")] = "60m",
    jobs: options.Jobs = 1,
    folder: options.Folder = Path("runs/cells"),
    plot: options.Plot = None,
    markdown: options.Markdown = None,
    table: options.Table = None,
    json: options.Json = None,
    check: Annotated[bool, typer.Option(
        "--check", help="Run nothing; say what a paper's table lacks. The exit code is 0 if it is "
        "complete, 1 if a row is not built or has too few seeds, 3 if one is not tuned, 4 if only "
        "data are not at hand.")] = False,
    estimate: Annotated[bool, typer.Option(
        "--estimate", help="Run nothing; print the runs that are missing and their CPU hours, "
        "estimated from similar runs.")] = False,
) -> None:
    """Show our numbers beside a paper's; the runs are kept, so the next time is quick.

    With all, --markdown names a folder into which every page and picture is written.
    """
    from fedvine.papers import reproduce as reproducing
    if check:
        from fedvine.papers.tables import worst
        found = reproducing.lacks(name, only=only, seeds=seeds, folder=folder)
        for page, lacks in found.items():
            typer.echo("\n".join(f"{page}, {said}" for said in lacks.sentences()))
        raise typer.Exit(worst(lacks.code for lacks in found.values()))
    if estimate:
        costs = reproducing.estimate(name, only=only, seeds=seeds, folder=folder)
        for page, (runs, spent) in costs.items():
            typer.echo(f"{page}: {runs:,} runs, {spent / 3600:.1f} CPU hours")
        return
    how: dict[str, Any] = {"seeds": seeds, "jobs": jobs, "folder": folder, "tell": options.tell,
                               "budget": options.seconds_of(budget) if budget else None,
                               "cap": options.seconds_of(cap)}
    stopped_as_by_ctrl_c()
    if name == reproducing.ALL:
        if only or json or plot or table or str(markdown) == "-":
            raise FedvineError("--only, --json, --table and --plot belong to one page; with all "
                               "give --markdown FOLDER.")
        from fedvine.results import frozen
        kept = frozen.names_in(markdown) if markdown else ()
        _pages(reproducing.reproduce_all(**how, without=kept), markdown)
        return
    _show(reproducing.reproduce(name, only=only, **how), markdown, json, plot, table)


def _pages(found: dict[str, Any], folder: Path | None) -> None:
    """Print a line a page; write pages and pictures into ``folder`` if it is given."""
    for name, sheet in found.items():
        if isinstance(sheet, str):
            print(f"{name}: {sheet}")
            continue
        if folder is not None and sheet.records:
            sheet.write(markdown=folder / f"{name}.md",
                        plot=folder / f"{name}.png" if sheet.picture else None)
        print(f"{name}: {sheet.notes[:2][-1]}")


def _show(sheet: Any, markdown: Path | None, json: Path | None, plot: Path | None = None,
          table: Path | None = None) -> None:
    if str(markdown) == "-":
        print(sheet.markdown(), end="")
        markdown = None
    else:
        from fedvine.core.text import Terminal
        sheet.show(Terminal())
    sheet.write(markdown=markdown, json=json, plot=plot, table=table)


# -- the command that searches settings: of one method, or of every row of a paper's table ---------
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
        places = {s.place: s for s in map(table.searched, table.chosen(only))}
        for setting, row in ((s, r) for s in places.values() for r in table.row if r.method):
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


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="A new folder.")],
    top: Annotated[int, typer.Option(min=0, help="For fedlink_plus: likeliest items of each user "
                                     "that can be scored, beside those it met.")] = 100,
) -> None:
    """Write a run's model as safetensors and Parquet, a script that loads them, and a card.

    The script needs no fedvine.
    """
    from fedvine.results import export as exporting
    found = exporting.export(run, out, top, options.over)
    print(f"Written to {out}: {'load.py, ' if found.script else ''}README.md, the model's arrays, "
          f"and those of {len({*found.clients, *found.tables})} clients.")
    if not found.script:
        print(found.how)


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run of "
                                        "fedlink_plus.")],
    feature: Annotated[str | None, typer.Option(
        help="A feature's name: what its values add to a score.")] = None,
    plot: options.Plot = None,
) -> None:
    """Print what the features of a pair weigh in its score, or what one of them adds."""
    import numpy as np

    from fedvine.core.errors import near
    from fedvine.core.files import atomic
    from fedvine.experiments.reopened import reopened
    from fedvine.methods._fedlink_plus.features import AT, CURVES, TABLE, effect
    from fedvine.methods.fedlink_plus import FedLinkPlus
    opened = reopened(run)
    if not isinstance(opened.method, FedLinkPlus):
        raise FedvineError(f"The run in {run} is of {opened.method.name}, whose scores are not "
                           "sums of features; those of fedlink_plus are.")
    server = opened.at_the_end()[0]
    w, _ = opened.method.answering(server)
    shown = {f.name: f for f in TABLE if f.part != "curves"}
    if feature is None:
        if plot:
            raise FedvineError("--plot draws one feature; name it with --feature.")
        print("A pair's score is the sum of its features times these weights; curves, named +, "
              "are drawn by --feature.\n")
        for f in shown.values():
            if value := w[getattr(AT, f.name)]:
                print(f"{value:+10.3f} {'+' if f.name in CURVES else ' '} {f.name:24} {f.about}")
        return
    if feature not in shown:
        raise FedvineError(f'There is no feature "{feature}"{near(feature, shown)}; fedvine '
                           f"explain {run} lists them.")
    x, y = effect(w, feature)
    print(f"{feature}: {shown[feature].about}\n\n{'value':>10} {'adds':>10}")
    print("\n".join(f"{a:10.3f} {b:+10.3f}" for a, b in np.stack([x, y], 1)))
    if plot:
        from fedvine.results.pictures import Drawing, line, plots
        figure, axes = plots([f"{feature}: {shown[feature].about}"])
        line(axes[0, 0], zip(x, y[:, None], strict=True), marker="o")
        axes[0, 0].set(xlabel=feature, ylabel="adds to the score")
        with atomic(plot) as file:
            file.write(Drawing(figure).rendered(plot.suffix[1:].lower()))


def audit(
    experiments: Annotated[list[Path], typer.Argument(
        metavar="EXPERIMENT...", help="TOML files of experiments; small ones, each is run some "
        "times.")],
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Put a value into each experiment.")] = None,
    markdown: Annotated[Path | None, typer.Option(
        help="A folder that gets audit.md.")] = None,
) -> None:
    """Run experiments, attack what the server received, and print what it could read."""
    from fedvine.experiments.command import from_command
    from fedvine.results import audit as auditing
    wanted = [from_command(str(file), {}, settings or [])[0] for file in experiments]
    done = [auditing.audit(one, file.stem, options.tell)
            for one, file in zip(wanted, experiments, strict=True)]
    for one in done:
        print(f"{one.name}: {one.method}", *auditing.table(one), "", sep="\n")
    if markdown is not None:
        command = " ".join(["fedvine audit", *map(str, experiments), *(
            f"--set {text}" for text in settings or []), f"--markdown {markdown}"])
        print(f"Written to {auditing.write_page(done, command, markdown)}")


def cells(
    data: Annotated[list[str] | None, typer.Argument(
        metavar="[DATA]...", help="Data sets; none: all, with their number of cells.")] = None,
    method: Annotated[str | None, typer.Option(help="Only cells of this method.")] = None,
    folder: Annotated[Path | None, typer.Option(
        help="Of the cells [default: docs/results/cells of a checkout, else runs/cells/kept].")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print whole cells, as JSON.")] = False,
    add: Annotated[Path | None, typer.Option(
        metavar="FOLDER", help="Add the cells of another folder first.")] = None,
) -> None:
    """Print kept cells: what was run with which settings, and what it scored."""
    import json

    from fedvine.results.cells import FOLDER, kept_beside
    from fedvine.results.kept import Kept, differing
    folder = folder or kept_beside(FOLDER)
    kept = Kept(folder)
    if add and not any(add.glob("*.parquet")):
        raise FedvineError(f"{add} has no kept cells.")
    if add:
        options.tell(f"{kept.add(Kept(add)):,} cells were added to {folder}.")
    found = {file.stem: [line for line in kept.lines(file.stem) if method in (
        None, line["method"])] for file in sorted(folder.glob("*.parquet"))}
    found = {name: chosen for name, chosen in found.items() if chosen}
    for name in data or ([] if found else ["any data"]):
        if name not in found:
            raise FedvineError(f'{folder} has no cells of {method or "a method"} on "{name}"; it '
                               f'has cells of {", ".join(found) or "nothing"}.')
    for name in data or found:
        chosen = found[name]
        if lines:
            print(*map(json.dumps, chosen), sep="\n")
        elif not data:
            print(f"{name}: {len(chosen):,} cells of {len({x['method'] for x in chosen})} methods")
        else:
            for line, other in differing(chosen):
                mean = line["summary"].get("scores", {}).get("test", {}).get("mean", {})
                shown = {"seed": line["seed"], "made": line.get("made", "")[:10], **{
                    key: mean[key] for key in ("auc", "am", "f1_micro") if key in mean}, **other}
                print(line["key"], line["method"], *map("{}={}".format, shown, shown.values()))


def cite(
    methods: Annotated[list[str] | None, typer.Argument(
        metavar="[METHOD]...", autocompletion=completion.methods, help="Methods' names.")] = None,
) -> None:
    """Print BibTeX of the methods' papers and of fedvine."""
    from fedvine.results import cite as citing
    print(citing.cite(methods or []))
