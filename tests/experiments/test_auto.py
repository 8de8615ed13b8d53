"""The choice of a method by its scores before the test period, and the run that goes on with it."""

import numpy as np
import pytest
import shop

from fedvine.cli import main
from fedvine.core.errors import FedvineError, NotWritten
from fedvine.data.io.read import from_frame
from fedvine.experiments import auto
from fedvine.experiments.auto import Candidate, choose, chosen, run_auto
from fedvine.experiments.run import run
from fedvine.experiments.run_files import read_choice, read_summary
from fedvine.experiments.summary import Costs
from fedvine.methods.popularity import Popularity
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.class_incremental import ClassIncremental, NodeScorer
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.testing import PROTOCOL, tiny_case, tiny_graphs, tiny_stream

QUICK = ["popularity", "recency", "edgebank"]
PLUS = "fedlink_plus:rounds=4:sampled=200:stages=4"


def frame(user, item, edges, clients=3):
    import pandas
    return pandas.DataFrame({"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item],
                             "at": np.arange(edges), "town": [f"t{u % clients}" for u in user]})


def case(user, item):
    stream = from_frame(frame(user, item, len(user)), src="user", dst="item", time="at",
                        client="town")
    return stream.split(by="town"), stream.by_count(len(user) // 10)


def without_structure(edges=4000):
    """Every user draws items by the same law, so that nothing is to be known of a user."""
    draw = np.random.default_rng(1)
    return draw.integers(0, 2000, edges), (60 * draw.random(edges) ** 2).astype(int)


def with_structure(edges=4000):
    """Users and items are of 6 groups, and a user draws from the items of the own group alone."""
    draw = np.random.default_rng(2)
    user = draw.integers(0, 240, edges)
    return user, 30 * (user // 3 % 6) + draw.integers(0, 30, edges)


def quiet(line):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(("made", "taken"), [(without_structure, "popularity"),
                                             (with_structure, PLUS)])
def test_what_fits_the_data_is_taken(made, taken, tmp_path):
    said = []
    found = run_auto(*case(*made()), out=tmp_path / "run", candidates=[*QUICK, PLUS],
                     protocol=LinkPrediction(positives=300), say=said.append).finish()
    chosen = found.summary["auto"]
    assert chosen["chosen"] == taken and chosen["why"].startswith(f"{taken} is taken: ")
    assert [c["name"] for c in chosen["candidates"]] == [*QUICK, PLUS]
    assert [line.split(": auc")[0] for line in said] == [*QUICK, PLUS]
    assert found.predict("t0", found.parts["t0"].src_ids[0], top=2)


def test_the_run_is_the_one_that_the_chosen_method_has_by_itself(tmp_path):
    split, plan = tiny_case()
    found = run_auto(split, plan, out=tmp_path / "run", candidates=QUICK, seed=3,
                     protocol=PROTOCOL, say=quiet).finish()
    method = auto.method_of(found.summary["auto"]["chosen"])
    alone = run(method, split, plan, seed=3, protocol=PROTOCOL).finish()
    assert found.scores == alone.scores
    assert not (tmp_path / "run" / auto.FOLDER).exists()
    assert read_summary(tmp_path / "run")["auto"] == read_choice(tmp_path / "run")


def test_no_candidate_is_scored_on_the_test_period(tmp_path):
    split, plan = tiny_case()
    kept = {}

    def start(word, folder):
        kept[word] = run(auto.method_of(word), split, plan, protocol=PROTOCOL, out=folder)
        return kept[word]

    choose(QUICK, start, tmp_path / "run", by="auc", say=quiet)
    for made in kept.values():
        assert {plan.period(s) for stage in made.stages for s in stage.found} <= {"train", "val"}


def test_the_simpler_is_taken_within_the_interval_and_not_outside_of_it():
    better = {(t, "a"): (0.8 + 0.01 * (t % 2), 100) for t in range(6)}
    equal = {(t, "a"): (0.8 + 0.01 * ((t + 1) % 2), 100) for t in range(6)}
    worse = {key: (score - 0.05, n) for key, (score, n) in better.items()}
    simple, other = Candidate("simple", equal), Candidate("other", better)
    task = LinkPrediction()
    assert chosen([simple, other], [simple, other], task, 1, "auc")["chosen"] == "simple"
    simple = Candidate("simple", worse)
    assert chosen([simple, other], [simple, other], task, 1, "auc")["chosen"] == "other"
    simple, other = Candidate("simple", {0: (0.0, 1)}), Candidate("other", {0: (1.0, 1)})
    assert chosen([simple, other], [simple, other], task, 1, "auc")["chosen"] == "simple"


def test_a_method_whose_server_holds_the_graph_is_not_compared_with_one_by_client(tmp_path):
    split, plan = tiny_case(tiny_stream())
    said = []
    made = run_auto(split, plan, out=tmp_path / "run", protocol=PROTOCOL, say=said.append,
                    candidates=["popularity", "roland:rounds=1:hidden=4"])
    found = read_choice(tmp_path / "run")
    assert made.method.name == found["chosen"] == "popularity"
    assert found["why"].endswith("no other candidate is left to compare it with.")
    assert "roland:rounds=1:hidden=4: left out, it is scored on other" in said[-1]


def test_what_does_not_fit_into_the_budget_is_left_out_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Costs, "seconds_cpu", property(lambda self: float(len(self.rounds))))
    split, plan = tiny_case()
    words, said = ["popularity", PLUS, "recency", "fedlink:rounds=1"], []
    found = run_auto(split, plan, out=tmp_path / "run", candidates=words, budget=2,
                     protocol=PROTOCOL, say=said.append)
    left = {c["name"]: c["left_out"] for c in read_choice(tmp_path / "run")["candidates"]}
    assert left == {"popularity": None, PLUS: "it did not fit into the budget",
                    "recency": "the budget was spent", "fedlink:rounds=1": "the budget was spent"}
    assert found.method == Popularity() and "left out" in said[1]


def test_a_choice_that_was_killed_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    split, plan = tiny_case()
    asked = {"candidates": QUICK, "protocol": PROTOCOL, "say": quiet}
    whole = run_auto(split, plan, out=tmp_path / "whole", **asked).finish()

    def stop(line):
        if line.startswith("recency"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_auto(split, plan, out=tmp_path / "run", **asked | {"say": stop})
    kept = tmp_path / "run" / auto.FOLDER / "popularity" / auto.MEASURED
    before = kept.read_text()
    with monkeypatch.context() as patch:
        def half(out, place):
            (place / "experiment.toml").replace(out / "experiment.toml")
            assert kept.read_text() == before       # its costs: it was not run again
            raise KeyboardInterrupt
        patch.setattr(auto, "_take", half)
        with pytest.raises(KeyboardInterrupt):
            run_auto(split, plan, out=tmp_path / "run", **asked)
    again = run_auto(split, plan, out=tmp_path / "run", **asked).finish()
    assert again.scores == whole.scores and again.method == whole.method


@pytest.mark.parametrize(("by", "beside", "name"), [
    ("auc_new", "n_new", "AUC new"), ("ndcg", "n_users", "NDCG@10 all"),
    ("map_new", "n_users_new", "MAP@10 new"), ("auc_historical", "n", "AUC hist.")])
def test_the_choice_may_be_by_any_score_of_the_task(by, beside, name, tmp_path):
    """Its mean is over what was measured, and the counts beside are those of its pairs or users."""
    split, plan = tiny_case()
    plain = LinkPrediction(negatives=5, positives=40)
    found = run_auto(split, plan, out=tmp_path / "run", candidates=["popularity"], by=by,
                     protocol=plain, say=quiet)
    lists = by in ("ndcg", "map_new")
    assert found.protocol.ranking is (True if lists else plain.settled(found.parts, plan).ranking)
    alone = run(Popularity(), split, plan, protocol=plain.model_copy(update={"ranking": True}))
    known = alone.finish().stages
    expected = {(t, client): (one["scores"][by], one["n"][beside]) for stage in known
                for t, by_client in stage.found.items() if plan.period(t) == "val"
                for client, one in by_client.items() if by in one["scores"]}
    assert alone.protocol.judged(known, plan, by) == expected and expected
    choice = read_choice(tmp_path / "run")
    assert (choice["by"], choice["score"]) == (by, name)
    assert choice["candidates"][0]["score"] == pytest.approx(
        np.mean([score for score, _ in expected.values()]))
    again = run_auto(split, plan, out=tmp_path / "run", candidates=["popularity"],
                     protocol=plain, say=quiet)     # the choice stays, with the score that it is by
    assert again.protocol == found.protocol


@pytest.mark.parametrize(("task", "by", "sentence"), [
    (LinkPrediction, "ndgc", 'by "ndgc" (did you mean "ndcg"?); choose by auc_new, mrr_new'),
    (LinkPrediction, "no_list", 'by "no_list", of which less is better; choose by auc_new'),
    (LinkPrediction, "novelty", 'by "novelty"'), (LinkPrediction, "coverage", 'by "coverage"'),
    (ClassIncremental, "fm", 'by "fm", of which less is better; choose by am, accuracy, balanced'),
    (ClassIncremental, "f1_macro", 'by "f1_macro"; choose by am, accuracy, balanced, ap.')])
def test_a_score_that_says_nothing_of_what_is_better_is_refused(task, by, sentence):
    with pytest.raises(FedvineError) as raised:
        task.key_of(by)
    assert sentence in str(raised.value)
    assert task.key_of(None) == task.shown.chosen_by == task.key_of(task.shown.chosen_by)


@pytest.mark.slow
def test_classes_of_a_labelled_graph_are_chosen_for(tmp_path):
    found = run_auto(*tiny_graphs(), out=tmp_path / "run", say=quiet,
                     candidates=["common", "power_plus:rounds=0"]).finish()
    assert found.summary["auto"]["score"] == "AM"
    assert all(c["scores"] for c in found.summary["auto"]["candidates"])


@pytest.mark.parametrize("key", ["accuracy", "balanced", "ap"])
def test_classes_are_chosen_for_by_what_is_asked(key, monkeypatch):
    """Scores equal those of all nodes for validation together, where clients need no weights."""
    split, plan = tiny_graphs()
    made = run(PowerPlus.tiny(), split, plan, seed=1)
    answers = []

    measure = NodeScorer.measure

    def kept(self, t, answer):
        if self.learned == len(self.plan) - 1:
            _, y, test = self._scored[t]
            answers.append((self.name, y[~test], np.asarray(answer)[~test]))
        return measure(self, t, answer)

    monkeypatch.setattr(NodeScorer, "measure", kept)
    found = made.protocol.judged(made.finish().stages, plan, key)
    y, scores = (np.concatenate([one[i] for one in answers]) for i in (1, 2))
    right = scores.argmax(1) == y
    if key == "accuracy":
        assert found == {(len(plan) - 1, name): (
            pytest.approx(np.mean(np.concatenate([
                s.argmax(1) == own for n, own, s in answers if n == name]))),
            sum(len(own) for n, own, _ in answers if n == name)) for name in split.parts}
    elif key == "balanced":
        assert found == {(len(plan) - 1, f"class {c}"): (
            pytest.approx(right[y == c].mean()), (y == c).sum()) for c in np.unique(y)}
    else:
        assert 0.5 < np.mean([value for value, _ in found.values()]) <= 1
        assert set(found) == {(len(plan) - 1, f"class {c}") for c in np.unique(y)}


def test_a_candidate_that_fails_is_left_out_and_without_any_the_reason_is_said(tmp_path):
    split, plan = tiny_case()
    asked = {"protocol": PROTOCOL, "say": quiet}
    found = run_auto(split, plan, out=tmp_path / "a", candidates=["common", "popularity"], **asked)
    assert found.method == Popularity()
    assert read_choice(tmp_path / "a")["candidates"][0]["left_out"]
    with pytest.raises(FedvineError):
        run_auto(split, plan, out=tmp_path / "b", candidates=["common"], **asked)
    assert not (tmp_path / "b").exists()


def test_a_full_disk_is_no_reason_against_a_candidate(tmp_path, monkeypatch):
    split, plan = tiny_case()
    asked = {"protocol": PROTOCOL, "say": quiet, "out": tmp_path / "a",
             "candidates": ["popularity", "edgebank"]}
    measure = auto._measure

    def full(candidate, *rest):
        if candidate.word == "edgebank":
            raise NotWritten("a file could not be written; free space.")
        return measure(candidate, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(auto, "_measure", full)
        with pytest.raises(NotWritten):
            run_auto(split, plan, **asked)
    assert (tmp_path / "a" / ".auto").exists()
    run_auto(split, plan, **asked)
    assert all(c["left_out"] is None for c in read_choice(tmp_path / "a")["candidates"])


# -- the command -----------------------------------------------------------------------------------
def command(*words):
    with pytest.raises(SystemExit) as ended:
        main.main([*map(str, words)])
    return ended.value.code


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(shop.write(tmp_path).parent)
    return tmp_path


TABLE = ["--data", "shop.csv", "--src", "user", "--dst", "item", "--time", "at", "--client", "town"]
FEW = ["--set", f"method.candidates={QUICK}"]


@pytest.mark.slow
def test_the_command_chooses_and_the_same_command_goes_on(place, capsys):
    assert command("run", "auto", *TABLE, *FEW, "--by", "ndcg") == 0
    first = capsys.readouterr()
    assert "is taken: " in first.out and "NDCG@10 all" in first.out
    assert "Kept in runs/auto-shop-s0" in first.out
    assert first.err.count("before the test period") == 3
    assert command("run", "auto", *TABLE, *FEW, "--by", "ndcg") == 0
    again = capsys.readouterr()
    assert again.out == first.out and "before the test period" not in again.err
    assert command("predict", "runs/auto-shop-s0", "--all", "--out", "all.csv") == 0
    assert command("report", "runs/auto-shop-s0") == 0
    assert "above the chosen" in (place / "report.html").read_text()
    assert command("run", "auto", *TABLE, *FEW, "--seed", "1", "--out", "runs/auto-shop-s0") == 2
    assert "holds a run of another experiment (seed" in capsys.readouterr().err


@pytest.mark.slow
def test_an_experiments_file_may_ask_for_a_choice_and_a_table_may_grow(place, capsys):
    (place / "exp.toml").write_text(
        'method = "auto"\nstages = 100\nopen_end = true\n[data]\nsource = "shop.csv"\n'
        'src = "user"\ndst = "item"\ntime = "at"\nclient = "town"\n')
    assert command("run", "exp.toml", *FEW) == 0
    rows = (place / "shop.csv").read_text().splitlines()
    more = [f"{row.split(',')[0]},{row.split(',')[1]},{5000 + i},ada"
            for i, row in enumerate(rows[1:151])]
    (place / "shop.csv").write_text("\n".join([*rows, *more]) + "\n")
    stages = read_summary("runs/exp-s0")["stages"]
    assert command("run", "exp.toml", *FEW) == 0
    grown = read_summary("runs/exp-s0")
    assert grown["stages"] > stages and grown["auto"] == read_choice("runs/exp-s0")


@pytest.mark.parametrize(("words", "sentence"), [
    (["run", "auto"], "Say with --data what to run on"),
    (["run", "auto", *TABLE, "--budget", "soon"], "'soon' is no time above 0"),
    (["run", "auto", *TABLE, "--budget", "0s"], "no time above 0"),
    (["run", "auto", *TABLE, "--set", "method.rounds=3"], 'no key "method.rounds"'),
    (["run", "auto", *TABLE, "--set", "method.candidates=['nobody']"], 'no method called "nobody"'),
    (["run", "auto", *TABLE, "--set", "method.candidates=[]"], "no candidate to choose from"),
    (["run", "auto", *TABLE, "--set", "method.candidates=['recency', 'recency']"], "there twice"),
    (["run", "auto", *TABLE, "--set", "protocol.task=nothing"], 'no task called "nothing"'),
    (["run", "auto", *TABLE, "--set", "protocol.positive=3"], 'no key "protocol.positive"'),
    (["run", "auto", "--data", "absent.csv"], "absent.csv"),
    (["run", "recency", *TABLE, "--budget", "5m"], "--budget belongs to fedvine run auto"),
    (["compare", "auto", "recency", *TABLE], "auto is not a method"),
    (["run", "auto", *TABLE, "--by", "ndgc"], 'did you mean "ndcg"?'),
    (["run", "recency", *TABLE, "--by", "ndcg"], "--by belongs to fedvine run auto"),
    (["run", "auto", *TABLE, "--out", "."], "has other things in it"),
    (["run", "auto", *TABLE, "--out", "shop.csv"], "shop.csv"),
])
def test_bad_input_gets_a_sentence_and_leaves_no_folder(words, sentence, place, capsys):
    assert command(*words) == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")
    assert not list(place.glob("runs/auto*"))
