"""A run folder that is read as it grows: the same lines and sums as if it were read anew."""

import json
from pathlib import Path

import asked
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.experiments.run_files import Tail, read_lines, summed
from fedvine.experiments.summary import Calls
from fedvine.results.watched import Watched


@settings(max_examples=60)
@given(st.lists(st.one_of(st.tuples(st.just("add"), st.integers(0, 999)),
                          st.tuples(st.just("part"), st.integers(1, 9)),
                          st.tuples(st.just("cut"), st.integers(0, 5)),
                          st.tuples(st.just("further"), st.just(0)),
                          st.tuples(st.just("look"), st.just(0))), max_size=25))
def test_the_tail_of_a_log_gives_its_lines_whatever_becomes_of_it(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("log")
    tail, found, number = Tail(folder, "metrics.jsonl"), [], 0
    for step, value in [*steps, ("look", 0)]:
        file = folder / ("metrics.jsonl" if not number else f"metrics-{number:06d}.jsonl")
        text = file.read_bytes() if file.exists() else b""
        whole = text[:text.rfind(b"\n") + 1]
        line = json.dumps({"t": value, "stage": 0, "period": "val", "client": "a", "n": {},
                           "scores": {"auc": value}}).encode() + b"\n"
        if step == "add":
            file.write_bytes(whole + line)
        elif step == "part":        # a line of which not all is on disk yet
            file.write_bytes(whole + line[:value])
        elif step == "cut":         # a run that went back to a save
            file.write_bytes(b"\n".join([*whole.split(b"\n")[:-1][:value], b""]))
        elif step == "further" and whole:
            file.write_bytes(whole)
            number += 1
        else:
            lines, anew = tail.more()
            found = lines if anew else [*found, *lines]
            assert found == read_lines(folder, "metrics.jsonl")


def test_a_line_that_no_run_writes_is_named_with_its_number(tmp_path):
    file = tmp_path / "messages.jsonl"
    file.write_text('{"t": 0}\n')
    tail = Tail(tmp_path, "messages.jsonl")
    assert tail.more() == ([{"t": 0}], True)
    file.write_text('{"t": 0}\n{"t": 1}\nno\n')
    with pytest.raises(FedvineError, match=r"messages.jsonl, line 3"):
        tail.more()


def test_calls_add_up_to_the_summary_also_where_the_log_was_summed(tmp_path):
    made = asked.links(tmp_path / "run", "fedlink").finish()
    lines = read_lines(tmp_path / "run", "messages.jsonl")
    calls, short = Calls(), Calls()
    calls.add(lines)
    short.add(summed(lines[:-3], 10 ** 6) + lines[-3:])
    for found in (calls, short):
        assert found.total == (made.summary["bytes_down"], made.summary["bytes_up"])
        assert found.place == (lines[-1]["t"], lines[-1]["r"])
    moved = {name: values for name, _, values in calls.plots()[0].series}
    assert moved["to clients"][-1] == pytest.approx(made.summary["bytes_down"] / 1e6)
    assert moved["from clients"] == sorted(moved["from clients"])


def test_a_run_is_watched_from_its_first_stage_to_its_end(tmp_path):
    made = asked.links(tmp_path / "run", "popularity")
    seen = Watched(tmp_path / "run")
    seen.look()
    assert not seen.error and seen.run is not None and not seen.run.summary
    assert (seen.run.stages, seen.run.lines, seen.run.calls.place) == (4, [], None)
    versions = [seen.version]
    for stage in made:
        seen.look()
        assert max((line["t"] for line in seen.run.lines), default=-1) <= stage.t
        assert seen.run.lines == read_lines(tmp_path / "run", "metrics.jsonl")
        versions.append(seen.version)
        seen.look()
        assert seen.version == versions[-1]     # nothing has changed
    seen.look()
    assert versions == sorted(set(versions)) and seen.version > versions[-1]
    assert seen.run.summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {name: sizes[0] for name, sizes in seen.run.sizes.items()} == made.summary["sizes"]
    assert sum(its["down"] for its in seen.run.moved.values()) == made.summary["bytes_down"]


@pytest.mark.parametrize("harm", ["link", "line", "summary", "experiment", "clients", "plan"])
def test_a_folder_of_somebody_else_is_refused_in_a_sentence_and_can_be_mended(tmp_path, harm):
    folder = tmp_path / "run"
    asked.links(folder, "popularity").finish()
    seen = Watched(folder)
    seen.look()
    assert not seen.error
    secret = tmp_path / "secret"
    secret.write_text('{"t": 0}\n')
    file = folder / {"link": "messages.jsonl", "line": "metrics.jsonl", "summary": "summary.json",
                     "experiment": "experiment.toml", "clients": "clients.json",
                     "plan": "data/rows.json"}[harm]
    before = file.read_bytes()
    file.unlink()
    if harm == "link":
        file.symlink_to(secret)
    else:
        file.write_text({"line": '{"t": "x"}\n', "clients": '{"ada": 3}', "plan": "[]"}.get(
            harm, "[1"))
    seen.look()
    assert str(folder) in seen.error or file.name in seen.error
    assert seen.run is None
    file.unlink()
    Path(file).write_bytes(before)
    seen.look()
    assert not seen.error and seen.run is not None
