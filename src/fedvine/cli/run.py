"""The command ``run``, and with ``--follow`` the process that stays."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time as clock
from collections.abc import Iterator
from functools import partial
from json import dump, dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import completion, options
from fedvine.core.errors import FedvineError, Unanswered

GATE = ["rows", "new", "clients", "scores"]


@options.data_options()
def run(
    what: Annotated[str, typer.Argument(metavar="METHOD|auto|METHOD.py|EXPERIMENT.toml",
                                        autocompletion=completion.runnable,
                                        help="A method's name; auto, which chooses one; a Python "
                                        "file with a method of your own (it is carried out); or "
                                        "an experiment's file.")],
    values: options.Values,
    now: Annotated[bool, typer.Option("--now", help="Learn the rows after the last whole stage, "
                                      "too, as a stage of their own.")] = False,
    as_of: Annotated[str | None, typer.Option(
        "--as-of", metavar="now|TIME", help="Stages of a duration are whole by the clock: when "
        "they have ended at this time, with or without rows; later rows wait. With --follow now "
        "alone [default: when there is a row at or past their end].")] = None,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of the experiment, such as method.rounds=5; "
        "may be given several times.")] = None,
    out: Annotated[Path | None, typer.Option(
        help="The run folder [default: runs/<method>-<data>-s<seed>].")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the scores to this file too.")] = None,
    keep: Annotated[bool, typer.Option(
        help="Copy a labelled graph into the run folder, which is then asked without its "
        "tables.")] = True,
    stay: Annotated[bool, typer.Option(
        "--follow", help="Stay: look at the data again and again, and learn the stages that are "
        "whole by then.")] = False,
    every: Annotated[str | None, typer.Option(
        help="Time between two looks of --follow [default: 60s].")] = None,
    forecasts: Annotated[Path | None, typer.Option(
        help="A .csv or .parquet file that --follow writes after each look that learned: all "
        "users' likeliest items, or the labels of all nodes.")] = None,
    top: Annotated[int | None, typer.Option(
        min=1, help="Items a user in --forecasts [default: 5].")] = None,
    budget: Annotated[str | None, typer.Option(
        help="Of auto: processor time for all candidates together, such as 90s or 1h [default: "
        "5m].")] = None,
    by: Annotated[str | None, typer.Option(
        "--by", metavar="KEY", help="Of auto: the score to choose by, such as ndcg, mrr or "
        "auc_new [default: the task's, auc for links].")] = None,
    changed: Annotated[str | None, typer.Option(
        metavar="relearn|append", help="Where rows that were learned are gone or have other values "
        "[default: ask]: learn again from there on, or take them out and learn what is there now "
        "as late rows.")] = None,
    stop_on: Annotated[str | None, typer.Option(
        metavar="all|rows,new,clients,scores", help="A gate: learn nothing of a night with unusual "
        "numbers of rows, shares of new users and items, silent clients, or a fall of scores; exit "
        "code 3.")] = None,
    anyway: Annotated[bool, typer.Option(
        "--learn-anyway", help="Learn also where the gate would be closed.")] = False,
    notify: Annotated[str | None, typer.Option(
        metavar="COMMAND", help="Give COMMAND what became of the night, as JSON on its standard "
        "input.")] = None,
    prefers: Annotated[str | None, typer.Option(
        "--for", metavar="all|new", help="Of fedlink_plus: the pairs whose scores decide what "
        "answers, all of them or those that did not meet before [default: all].")] = None,
    track: Annotated[str | None, typer.Option(
        metavar="mlflow|tensorboard|wandb", help="Tell this tracker scores, costs and settings; "
        'needs pip install "fedvine[track]".')] = None,
) -> None:
    """Run a method and keep everything in a run folder; the same command again goes on."""
    if json and json.is_dir():
        raise FedvineError(f"{json} is a folder; name a .json file with --json.")
    if stay and changed:
        raise FedvineError("--changed belongs to a run that ends; leave out --follow.")
    if stay and (now or not keep):
        raise FedvineError("--follow learns whole stages and keeps their rows; leave out --now and "
                           "--no-keep. With --as-of now stages are whole by the clock.")
    if stay and as_of not in (None, "now"):
        raise FedvineError("--follow goes on with the clock; write --as-of now, or leave it out.")
    if not stay and not (every is forecasts is top is None):
        raise FedvineError("--every, --forecasts and --top belong to --follow; fedvine predict RUN "
                           "--all --out FILE writes the forecasts of any run.")
    from fedvine.core.compiling import leave_out_compiler
    from fedvine.core.files import atomic
    from fedvine.experiments import command
    from fedvine.experiments.summary import keep_large_blocks
    keep_large_blocks()
    leave_out_compiler()
    gate = stop_on and f"gate.stop_on={GATE if stop_on == 'all' else stop_on.split(',')}"
    words = values, [*(settings or []), *([f"method.prefers={prefers}"] if prefers else []),
                     *([gate] if gate else [])]
    automatic = command.automatic(what, *words)
    if automatic is not None:
        whole, name = automatic
        out = out or Path("runs") / f"{name}-s{whole.get('seed', 0)}"
        ready = partial(command.chosen, whole, out, budget=budget, by=by, keep=keep, as_of=as_of,
                        say=options.tell)
    elif budget is not None or by is not None:
        raise FedvineError(f"--{'budget' if budget is not None else 'by'} belongs to fedvine run "
                           "auto; leave it out.")
    else:
        experiment, name = command.from_command(what, *words)
        out = out or Path("runs") / f"{name}-s{experiment.seed}"
        ready = partial(lambda found: found, experiment)
    from fedvine.experiments import progress
    from fedvine.experiments.track import check, tracked
    from fedvine.results.view import RunView, records
    if track:
        check(track)

    noted: set[str] = set()

    def carry(made: Any) -> None:
        for sentence in made.notes if made.summary is None else ():
            if sentence not in noted:
                note(sentence)
        noted.update(made.notes)
        with tracked(made, track) if track else contextlib.nullcontext():
            progress.follow(made, options.console(sys.stderr))
        if json and made.summary is not None:
            with atomic(json, "w") as file:
                dump(records(out), file, indent=1)

    with _stoppable(out), _told(notify, out):
        experiment = ready()
        if stay:
            from fedvine.experiments.follow import follow
            follow(experiment, out, every=options.seconds_of(every or "60s"), forecasts=forecasts,
                   top=top or 5, as_of=(lambda: "now") if as_of else None, anyway=anyway,
                   carry=carry, say=lambda text: _say(text, experiment.data.timezone or True))
            raise KeyboardInterrupt
        try:
            made = experiment.run(out, now=now, as_of=as_of, keep=keep, changed=changed,
                                  anyway=anyway)
        except Unanswered as error:
            if not sys.stdin.isatty():
                raise
            answer = typer.prompt(f"{error}\nrelearn, append, or stop")
            if answer == "stop":
                raise
            made = experiment.run(out, now=now, as_of=as_of, keep=keep, changed=answer,
                                  anyway=anyway)
        for sentence in (*(made.notes if made.summary is None else ()), *made.news):
            note(sentence)
        noted.update(made.notes)
        carry(made)
    view = RunView.read(out)
    view.show(options.console())
    if view.report:
        options.console().print(f"{view.method} reports\n{view.report}\n", highlight=False,
                                soft_wrap=True)
    print(" ".join(filter(None, [view.learned, f"Kept in {out}"])))


@contextlib.contextmanager
def _told(command: str | None, out: Path) -> Iterator[None]:
    """Keep what became of the night in the run folder, and tell a command."""
    from fedvine.experiments import nights
    from fedvine.experiments.run_files import read_object
    from fedvine.results.view import RunView
    before = read_object(out / "summary.json").get("stages")
    state, night = dict[str, Any](state="failed", why=[]), False
    try:
        yield
        state = {"state": "ok", "why": []}
        view = RunView.read(out)
        night = view.task.plan_of(view.plan).living
        if night and before == view.summary.get("stages"):
            state = {"state": "waiting", "why": view.waiting}
    except FedvineError as error:
        state = {"state": {3: "refused", 4: "question"}.get(error.code, "failed"),
                 "why": getattr(error, "reasons", [str(error)])}
        if night := error.code == 3:
            nights.log(out, {"refused": state["why"]})
        raise
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        state = {"state": "stopped" if stopped else "failed", "why": [] if stopped else [
            str(error) or type(error).__name__]}
        raise
    finally:
        if night:       # of other errors nothing changes
            nights.ended(out, **state)
        if command:
            try:
                subprocess.run(shlex.split(command), input=dumps({"run": str(out), **state}),
                               text=True, timeout=60, check=True)
            except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
                note(f"--notify {command} failed ({error}).")


def note(text: str) -> None:
    """Print a sentence to stderr that a person should know."""
    options.console(sys.stderr).print(f"Note: {text}", highlight=False, soft_wrap=True)


def _say(text: str, zone: Any) -> None:
    from fedvine.data.dates import moment
    options.tell(f"{moment(clock.time(), zone)}  {text}")


@contextlib.contextmanager
def _stoppable(out: Path) -> Iterator[None]:
    """Let Ctrl-C, or a plain kill, end the run with a sentence on how to go on."""
    stopped_as_by_ctrl_c()
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nStopped. What was saved is in {out}; the same command again goes on from there.",
              file=sys.stderr)
        raise typer.Exit(130) from None


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.05        # seconds until a signal that got lost comes again


def stopped_as_by_ctrl_c() -> None:
    """Let a plain kill, or the terminal's end, end a command and its processes as Ctrl-C does.

    Python drops an exception that is raised in a function which C calls back (as LLVM does while
    it compiles) or in a ``__del__``. A ``KeyboardInterrupt`` dropped there comes again.
    """
    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in STOPS[1:]:
        if signal.getsignal(number) == signal.SIG_DFL:  # under nohup a hang-up is ignored
            signal.signal(number, stop)
    if not isinstance(sys.unraisablehook, _Again):
        sys.unraisablehook = _Again(sys.unraisablehook)


class _Again:
    """A hook for exceptions that Python dropped: an interruption is sent again."""

    def __init__(self, other: Any) -> None:
        self.other = other      # for every other exception

    def __call__(self, dropped: Any) -> None:
        number = next((n for n in STOPS if callable(signal.getsignal(n))), None)
        if number is None or not issubclass(dropped.exc_type, KeyboardInterrupt):
            self.other(dropped)
            return
        # at once it would be raised here, and dropped again
        later = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
        later.daemon = True
        later.start()
