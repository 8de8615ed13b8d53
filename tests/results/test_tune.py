"""A search chooses on validation, goes on where it was stopped, and says what it did."""

import json
import sys

import optuna
import pytest
import shop

from fedvine.cli import main
from fedvine.core import registry
from fedvine.core.errors import Busy, FedvineError
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.results import tune
from fedvine.results.compare import experiments
from fedvine.results.tune import Study


def wanted(folder, word="popularity", *more):
    data = {"source": str(shop.write(folder)), **shop.COLUMNS}
    return experiments([word], {"data": data, "stages": "400s"},
                       ["protocol.negatives=5", *more])[0]


def search(folder, word="popularity", **options):
    options = {"trials": 6, "out": folder / "tune", "folder": folder / "cells",
               "tell": lambda line: None} | options
    return tune.tune(wanted(folder, word), **options)


def trials(folder):
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(folder / "tune" / "trials.log")))
    return optuna.load_study(storage=storage, study_name="tune").trials


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return folder, search(folder)


@pytest.mark.slow
def test_the_best_on_validation_is_chosen_and_written(once):
    folder, found = once
    over = trials(folder)
    assert len(over) == 6 and over[0].user_attrs["fields"] == {"decay": 0.5}     # as shipped
    best = max((t for t in over if t.state.name == "COMPLETE"), key=lambda t: t.value)
    assert found.search.value == best.value         # several settings may have it
    assert found.search.fields in [t.user_attrs["fields"] for t in over if t.value == best.value]
    assert found.search.shipped == over[0].value <= found.search.value
    val = []
    for seed in (100, 101, 102):
        run = wanted(folder).updated({"seed": seed, "method": found.search.fields}).run().finish()
        val.append(run.summary["scores"]["val"]["mean"]["auc"])
    assert found.search.value == pytest.approx(sum(val) / 3, rel=1e-6)
    written = Experiment.read(found.file)
    assert written.seed == 0 and written.method.decay == found.search.fields["decay"]
    assert written.plain() == found.experiment.plain()
    first, second, third = found.file.read_text().splitlines()[:3]
    assert first.startswith("# popularity on shop, tuned on validation of seeds 100 to 102, 6 ")
    assert second == (f"# Best validation auc {best.value:.4g}: the setting found; the defaults "
                      f"have {over[0].value:.4g}.")
    assert third == "# Searched: decay 0.0 to 1.0."


def test_its_line_is_kept_and_its_runs_end_after_validation(once):
    folder, found = once
    assert not (folder / "cells" / "kept" / "shop.parquet").exists()
    for logs in (folder / "cells").glob("*/metrics.jsonl"):
        assert {json.loads(line)["period"] for line in logs.read_text().splitlines()} == {"val"}
    assert not list((folder / "cells").glob("**/saves"))        # they add up over searches
    assert tune.find_search(wanted(folder), 100, folder / "cells") == found.search
    assert tune.find_search(wanted(folder), 101, folder / "cells") is None
    other = wanted(folder, "popularity:decay=0.5", "protocol.negatives=6")
    assert tune.find_search(other, 100, folder / "cells") is None


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_to_the_same_end(once, tmp_path, monkeypatch):
    folder, _ = once
    real, count = Study.scored, iter(range(100))

    def stopped(self, cell):
        if next(count) in (0, 5):       # in the first seed of a trial, and in a later one
            raise KeyboardInterrupt
        return real(self, cell)
    monkeypatch.setattr(Study, "scored", stopped)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path)
    found = search(tmp_path)
    def values(where):
        return [(t.user_attrs["fields"], t.value) for t in trials(where)
                if t.state.name in ("COMPLETE", "PRUNED")]
    assert len(trials(tmp_path)) == 8 and values(tmp_path) == values(folder)[:6]
    assert found.search.trials == 6


@pytest.fixture
def scored(monkeypatch):
    """Cells that are not run: a function that sets what they score, and (decay, seed) of each."""
    how, asked = [], []

    class Cell:
        absent, data, finished = "", "shop", True
        keep = drop_saves = lambda self, **_: None

        def __init__(self, made):
            self.place = made.method.decay, made.seed

        @property
        def summary(self):
            asked.append(self.place)
            return {"scores": {"val": {"mean": {"auc": how[-1](*self.place)}}}}

    real = tune.cells
    monkeypatch.setattr(tune, "cells", lambda wanted, folder: (     # the list is the search's own
        real(wanted, folder) if isinstance(wanted, list) else map(Cell, wanted)))
    return how.append, asked


def test_a_trial_that_is_below_the_others_is_stopped_after_a_seed(tmp_path, scored):
    by, asked = scored
    by(lambda decay, seed: 1 - abs(decay - 0.5))
    found = search(tmp_path, trials=9)
    early = [t for t in trials(tmp_path) if t.state.name == "PRUNED"]
    assert found.search.early == len(early) > 0 and found.search.trials == 9
    for t in early:
        runs = [s for d, s in asked if d == t.user_attrs["fields"]["decay"]]
        assert runs == [100, 101][:len(runs)]
    assert [s for d, s in asked if d == 0.5] == [100, 101, 102]


def test_the_defaults_win_where_what_looked_better_by_one_seed_is_not(tmp_path, scored):
    by, _ = scored
    by(lambda decay, seed: (0.6 if seed == 100 else 0.9) if decay == 0.5 else 0.7)
    found = search(tmp_path, trials=4)
    assert found.search.fields == {"decay": 0.5} and found.search.stayed
    assert found.search.value == pytest.approx(0.8)
    assert found.search.comment()[1] == (
        "Best validation auc 0.8: the defaults, which no other setting was above.")
    assert tune.stated(None, found.search).endswith("4 trials (shipped defaults)")
    one = search(tmp_path, trials=4, seeds=1, out=tmp_path / "one")
    assert one.search.fields != {"decay": 0.5} and not one.search.stayed
    assert str(one.search) == "tuned on validation of seed 100, 4 trials"


@pytest.mark.slow
def test_a_spent_budget_leaves_trials_for_the_next_time(tmp_path):
    with pytest.raises(FedvineError, match="No trial of popularity was finished yet"):
        search(tmp_path, budget=0)
    assert search(tmp_path, trials=2).left == 0


@pytest.mark.slow
def test_a_trial_that_fails_is_counted_and_the_others_go_on(tmp_path, monkeypatch):
    scored, told = Study.scored, []

    def failing(self, cell):
        if cell.experiment.method.decay == 0.5:
            raise FedvineError("It broke.")
        return scored(self, cell)
    monkeypatch.setattr(Study, "scored", failing)
    found = search(tmp_path, trials=3, tell=told.append)
    assert found.search.trials == 3 and found.search.shipped is None
    assert told[0] == "1  decay 0.5: failed, It broke."
    monkeypatch.setattr(Study, "scored", lambda *a: (_ for _ in ()).throw(
        FedvineError("It broke.")))
    with pytest.raises(FedvineError, match=r"No trial of popularity was finished \(It broke\.\)"):
        search(tmp_path, seed=101, out=tmp_path / "other", trials=2)


@pytest.mark.slow
def test_what_cannot_be_searched_is_said_in_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(FedvineError, match="Seeds below 100 are those of tables"):
        search(tmp_path, seed=7)
    with pytest.raises(FedvineError, match="popularity has no settings to search"):
        search(tmp_path, "popularity:decay=0.5")
    with pytest.raises(FedvineError, match=r'no score "aux" \(did you mean "auc"\?\)'):
        search(tmp_path, score="aux", trials=1)
    with pytest.raises(FedvineError, match='Of "no_list" less is better'):
        search(tmp_path, score="no_list", trials=1)
    (tmp_path / "tune").mkdir()
    with run_folder.alone(tmp_path / "tune"), pytest.raises(FedvineError, match="process searches"):
        search(tmp_path, score="auc_across", trials=1)
    with pytest.raises(FedvineError, match="no validation score"):
        search(tmp_path, score="auc_across", trials=1)
    with pytest.raises(FedvineError, match="holds another search"):
        search(tmp_path, score="mrr", trials=1)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(FedvineError, match=r"pip install 'fedvine\[tune\]'"):
        search(tmp_path, score="auc_across")


def test_whole_bounds_of_a_number_with_fractions_are_a_range(monkeypatch):
    monkeypatch.setattr(registry.method("popularity"), "space", {"decay": (0, 1)})
    low, high = tune.searched(registry.method("popularity")())["decay"]
    assert (low, high) == (0, 1) and isinstance(low, float) and isinstance(high, float)


def test_a_run_that_another_process_uses_is_no_failed_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "scored", lambda *a: (_ for _ in ()).throw(Busy("It is used.")))
    with pytest.raises(Busy):
        search(tmp_path, trials=1)
    monkeypatch.undo()
    assert search(tmp_path, trials=1).search.shipped is not None


@pytest.mark.parametrize("name", sorted(registry.methods()))
def test_a_space_holds_the_defaults_and_nothing_that_a_field_refuses(name):
    kind = registry.method(name)
    for field, what in tune.searched(kind()).items():
        usual = kind.model_fields[field].default
        inside = usual in what if isinstance(what, list) else what[0] <= usual <= what[1]
        assert inside, f"{field}: {usual} is not in {what}"
        for value in what if isinstance(what, list) else what[:2]:
            assert getattr(kind(**{field: value}), field) == value


@pytest.mark.slow
def test_the_command_and_its_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shop.write(tmp_path)
    columns = [x for key, value in shop.COLUMNS.items() for x in (f"--{key}", value)]
    with pytest.raises(SystemExit) as ended:
        main.main(["tune", "popularity", "--data", "shop.csv", *columns, "--stages", "400s",
                  "--undirected", "--sure", "--trials", "2", "--set", "protocol.negatives=5",
                  "--score", "mrr"])
    assert not ended.value.code
    out = capsys.readouterr().out
    file, = (tmp_path / "runs" / "tune").glob("popularity-shop-*/experiment.toml")
    assert str(file.relative_to(tmp_path)) in out and "2 trials" in out
    assert Experiment.read(file).method.name == "popularity"
    with pytest.raises(SystemExit):
        main.main(["tune", "fedlink-table2"])
    assert "fedlink-table2 takes no settings of searches" in capsys.readouterr().err
