"""Stay with data that grow: look again, learn the stages that are whole, write forecasts, go on.

A look compares names, sizes and times of change of the data's files; a query is run. Where
something differs, or a stage has ended by the clock, the data are read, and where a stage is whole
it is learned, as the same command would do. Between looks the run's folder is free: others may ask
the run.

``follow.json`` in the run folder has the stages that the forecasts in a file are of. It is written
after the file, so a process that is killed between learning and writing writes at its next start.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, Self

from fedvine.core.errors import FedvineError, TooEarly
from fedvine.core.files import atomic, cache_folder, caching_in
from fedvine.data import handed
from fedvine.data.dates import moment, time_of
from fedvine.data.io import source as sources
from fedvine.data.io.cache import fingerprint
from fedvine.data.spec import Data
from fedvine.experiments import nights, run_folder
from fedvine.experiments.answers import Labels, write_tables
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import Run
from fedvine.living.gate import Closed


# -- pauses of a process that stays: a signal ends one, and asks for the end of the process --------
class Pauses:
    """Pauses in a ``with`` block, where signals are taken as follows.

    - SIGUSR1 ends a pause, or leaves out the next one.
    - SIGINT (Ctrl-C), SIGTERM and SIGHUP end it too, and set ``stopping``. The second of them
      raises :class:`KeyboardInterrupt` at once. One that is ignored (``nohup``) stays ignored.

    In another thread than the first one signals are left as they are.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._before: dict[int, Any] = {}
        self._ends: tuple[int, int] = (-1, -1)

    def __enter__(self) -> Self:
        self._ends = os.pipe()
        os.set_blocking(self._ends[1], False)
        if threading.current_thread() is threading.main_thread():
            for number, then in ((signal.SIGUSR1, self._look), (signal.SIGINT, self._stop),
                                 (signal.SIGTERM, self._stop), (signal.SIGHUP, self._stop)):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, then)
        return self

    def __exit__(self, *error: object) -> None:
        for number, then in self._before.items():
            signal.signal(number, then)
        for end in self._ends:
            os.close(end)

    def wait(self, seconds: float) -> bool:
        """Pause for so many seconds at most; return whether a signal ended the pause."""
        ready, _, _ = select.select([self._ends[0]], [], [], seconds)
        if ready:
            os.read(self._ends[0], 4096)
        return bool(ready)

    def _look(self, number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):      # thousands of signals wait
            os.write(self._ends[1], b".")

    def _stop(self, number: int, frame: object) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        self._look(number, frame)


SELDOM = 64     # looks after which a look that failed is tried again although nothing has changed


class Pausing(Protocol):
    """A way to wait between looks; see :class:`Pauses`."""

    stopping: bool

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most; return whether to look now in any case."""
        ...


def follow(experiment: Experiment, out: str | os.PathLike[str], *, every: float = 60.0,
           forecasts: str | os.PathLike[str] | None = None, top: int = 5,
           as_of: Callable[[], str | float] | None = None, anyway: bool = False,
           carry: Callable[[Run], object] = Run.finish, say: Callable[[str], object] = print,
           pauses: Pausing | None = None) -> None:
    """Carry out a run and stay: whenever its data have grown by whole stages, learn them.

    Returns after SIGINT (Ctrl-C), SIGTERM or SIGHUP, at the end of a round, which is saved; SIGUSR1
    makes it look at once. The same call goes on, also after a kill at any moment, with the same
    scores.

    A look that fails, as the data cannot be read or have lost a row, is said once; the run stays as
    it is, and the next looks try again. The first look at the data of a new run must succeed; if
    they do not have a whole stage yet, it waits for one.

    Args:
        experiment: the experiment; ``open_end`` true for stages on an open grid.
        out: the run folder.
        every: seconds between two looks, above 0.
        forecasts: a .csv or .parquet file to write whenever stages were learned, whole or not at
            all: the likeliest items of all users, as :meth:`Forecasts.every` does; of a labelled
            graph the labels of all nodes.
        top: items a user.
        as_of: returns at each look the time by which stages are whole, such as "now"
            (:meth:`Experiment.run`); None: a stage is whole when there is a row at or past its end.
        anyway: learn also where the gate would be closed.
        carry: carries out a run that is not finished.
        say: gets the sentences for a person: what was learned, what waits, drift, failures.
        pauses: how to wait; None: for ``every`` seconds or a signal.

    Raises:
        FedvineError: for a new run that cannot begin, a folder with another run, or one that
            another process follows.
        KeyboardInterrupt: where a signal to stop came within a stage, or came twice.
    """
    if not every > 0:
        raise FedvineError(f"Looks cannot be {every:g} s apart; name a time above 0.")
    if forecasts is not None and Path(forecasts).suffix not in (".csv", ".parquet", ".pq"):
        raise FedvineError(f"{forecasts} must end in .csv or .parquet, which says what to write.")
    out = Path(out)
    with contextlib.ExitStack() as stack:
        given = stack.enter_context(Pauses()) if pauses is None else pauses
        follower = _Follower(experiment, out, forecasts, top, carry, say, given, as_of, anyway)
        stack.enter_context(_alone(follower))
        asked = False
        while True:
            follower.look(asked)
            if given.stopping:
                return
            asked = given.wait(every)
            if given.stopping:
                return


def seen(data: Data) -> str | None:
    """Return text that changes with the data: of their files' sizes and times of change.

    None for a query, which has to be run. Data sets do not change. Raises :class:`FedvineError`
    where the files are not there.
    """
    tables = [table for table in (None if data.dataset else data.source, data.edges, data.users,
                                  data.items) if table is not None]
    if not tables:
        return data.source
    if any(map(sources.is_query, tables)):
        return None
    try:
        return fingerprint([file for table in tables for file in sources.files(table)], "")
    except OSError as error:
        raise FedvineError(f"{error.filename or data.source} cannot be read ({error.strerror})."
                           ) from error


class _Follower:
    """The follower of one run; its memory does not grow with the number of looks."""

    def __init__(self, experiment: Experiment, out: Path,
                 forecasts: str | os.PathLike[str] | None, top: int,
                 carry: Callable[[Run], object], say: Callable[[str], object], pauses: Pausing,
                 as_of: Callable[[], str | float] | None = None, anyway: bool = False) -> None:
        self.experiment, self.out, self.top, self.anyway = experiment, out, top, anyway
        self.forecasts = None if forecasts is None else Path(forecasts)
        self.as_of = as_of
        self.carry, self.say, self.pauses = carry, say, pauses
        self._seen: Any = None          # of data and run, at the last look that went well
        self._tried: str | None = None  # of the data, at the last look that failed
        self._failed = 0                # looks since the first that failed, from 1
        self._closed: list[str] = []    # why the gate is closed, as it was logged
        own = hashlib.sha256(str(out.absolute()).encode()).hexdigest()[:16]
        self._cache = cache_folder() / f"follow-{own}"  # the table as it was read last
        self._said: list[str] = []      # the failure, or the news, that were said last

    def begun(self) -> bool:
        """Return whether the folder has a run of this experiment."""
        try:
            known = run_folder.read_experiment(self.out).get("data", {})
        except FedvineError:
            return False
        return self.experiment.began(known)

    def look(self, asked: bool = False) -> None:
        """Look once; ``asked``: also where the same data could not be used before."""
        try:
            now = seen(self.experiment.data)
            if now is not None:
                if (now, self._folder()) == self._seen and not self._due():
                    return
                if self._failed and now == self._tried and not asked and self._later():
                    return
            self._tried = now
            with contextlib.nullcontext() if self.experiment.data.dataset else (
                    caching_in(self._cache)):
                self._go_on()
            self._seen, self._failed, self._closed = (now, self._folder()), 0, []
        except FedvineError as error:
            if not (self.begun() or isinstance(error, TooEarly)):
                raise
            self._failed += 1
            if isinstance(error, Closed) and error.reasons != self._closed:
                self._closed = error.reasons
                nights.log(self.out, {"refused": error.reasons})
                nights.ended(self.out, "refused", error.reasons)
            self._tell([str(error) if isinstance(error, TooEarly) else
                        f"{error} The run stays as it is, and the data are looked at again."])
        gc.collect()

    def _due(self) -> bool:
        """Return whether a stage may have ended by the clock since the last look."""
        if self.as_of is None:
            return False
        end = (_read(self.out / "data" / "rows.json") or {}).get("next")
        return end is None or end <= time_of(str(self.as_of()))

    def _later(self) -> bool:
        """Return whether it is too early to try the same again: 1, 2, 4, ... looks lie between."""
        if self._failed & (self._failed - 1) == 0 or self._failed % SELDOM == 0:
            return False
        self._failed += 1
        return True

    def _folder(self) -> list[int]:
        """Return the time of change of what another process would change in the run."""
        return [file.stat().st_mtime_ns if file.exists() else 0
                for file in (self.out / "data" / "rows.json", self.out / "summary.json")]

    def _go_on(self) -> None:
        when = None if self.as_of is None else self.as_of()
        found = (self.experiment.grown(self.out, as_of=when, anyway=self.anyway)
                 if self.begun() else None)
        if found is not None and self._done(len(found[0].rows.plan)):
            self._tell(found[0].sentences)
            return
        made = self.experiment.run(self.out, as_of=when, anyway=self.anyway)
        learned = made.summary is None
        if learned:
            made.halted = lambda: self.pauses.stopping
            self.carry(made)
            assert made.summary is not None
            self.say(_learned(made))
            for sentence in made.summary.get("drift", ()):
                self.say(sentence)
        self._tell(made.news)
        self._write(made)

    def _done(self, stages: int) -> bool:
        """Return whether so many stages are learned, and their forecasts written."""
        return run_folder.read_summary(self.out, stages) is not None and self._written(stages)

    def _written(self, stages: int) -> bool:
        return self.forecasts is None or (
            self.forecasts.exists() and _read(self.out / "follow.json") == self._mark(stages))

    def _mark(self, stages: int) -> dict[str, Any]:
        """Return what ``follow.json`` has when the forecasts of so many stages are written."""
        return {"file": str(self.forecasts and self.forecasts.absolute()), "stages": stages,
                "top": self.top}

    def _tell(self, sentences: list[str]) -> None:
        """Say sentences, unless they are those that were said last."""
        if sentences != self._said:
            for sentence in sentences:
                self.say(sentence)
        self._said = list(sentences)

    def _write(self, made: Run) -> None:
        """Write the forecasts, unless those of the last learned stage are there."""
        if self.forecasts is None or self._written(len(made.plan)):
            return
        rows = (write_tables(self.forecasts, iter([Labels(made).table()]))
                if made.protocol.data == "graph" else
                Forecasts(made).every(self.top, self.forecasts))
        with atomic(self.out / "follow.json", "w") as file:
            json.dump(self._mark(len(made.plan)), file)
        handed.remember_file(self.out, str(self.forecasts.absolute()))
        self.say(f"{rows:,} rows in {self.forecasts}")


@contextlib.contextmanager
def _alone(follower: _Follower) -> Iterator[None]:
    """Let no other process follow the same run; an empty folder of a run that failed is removed."""
    out, new = follower.out, not follower.out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedvineError(f"{out} cannot be a run folder ({error.strerror}); choose another one "
                           "with --out.") from error
    with run_folder.alone(out, ".follow", f"Another process follows the run in {out} already; stop "
                          "it first, or choose another folder with --out."):
        try:
            yield
        except BaseException:
            if not follower.begun():
                (out / ".follow").unlink(missing_ok=True)
                if new:
                    with contextlib.suppress(OSError):
                        out.rmdir()
            raise


def _learned(made: Run) -> str:
    count, bounds = len(made.plan), getattr(made.plan, "bounds", None)
    dates = getattr(made.ready.stream, "dates", False)
    return (f"{count:,} stage{'s are' if count != 1 else ' is'} learned"
            + (f", to {moment(bounds[-1], dates)}." if bounds else "."))


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
