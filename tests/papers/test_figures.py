"""Figures of a paper: every cell can be built, a small one is run, read back and drawn."""

import json
import re

import pytest
import quick

from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.nn.gat import inputs
from fedvine.papers import figures, power
from fedvine.papers.figures import Figure, names
from fedvine.papers.study import carry_out, chosen

SMALL = '''
title = "small"
claim = "more rounds are better."
common = {data = {source = "digits"}, split = {k = 2}, method = {epochs = 1, hidden = 4}}
axis = {name = "rounds", key = "method.rounds", values = [0, 2]}
%s
[[panel]]
name = "digits"
settings = {}

[[row]]
name = "FedAvg"
method = {name = "fedavg"}
'''


@pytest.mark.parametrize("name", names())
def test_every_cell_of_a_figure_can_be_built(name):
    figure = Figure.named(name)
    for panel in figure.panel:
        for line in figure.row:
            made = [figure.experiment(panel, line, v, figure.other and figure.other.values[0])
                    for v in figure.along(panel).values]
            assert len({m.identity() for m in made}) == len(made)     # the axis changes something
    study = figures.study(figure)
    assert chosen(study.title, study.panels, figure.panel[0].name) == study.panels[:1]
    with pytest.raises(FedvineError, match="has no experiment"):
        chosen(study.title, study.panels, "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("heat", [False, True])
def test_a_small_figure_is_run_read_back_and_drawn(tmp_path, monkeypatch, heat):
    quick.here(monkeypatch)
    monkeypatch.setattr(figures, "PAPERS", tmp_path)
    other = ('[other]\nname = "rate"\nkey = "method.learning_rate"\nvalues = [0.01, 0.1]\n'
             if heat else "")
    (tmp_path / "small.toml").write_text(SMALL % other)
    told: list[str] = []
    small = figures.study(Figure.named("small"))
    found = carry_out(small, seeds=1, folder=tmp_path / "cells", tell=told.append)
    made = len([line for line in told if re.match(r"\d+/\d+  ", line)])
    assert made == len(found.records) // 3 == (4 if heat else 2)        # two clients and their mean
    mean = {(r["value"], r["other"]): r["scores"]["am"] for r in found.records
            if r["client"] is None}
    cells = [c for row in found.grids[0].rows for c in row[1:]]
    assert cells == [f"{mean[v, o]:.1f}" for o in ([0.01, 0.1] if heat else [None])
                     for v in (0, 2)]
    assert found.picture is not None and found.picture.rendered()[:4] == b"\x89PNG"
    told.clear()
    again = carry_out(small, seeds=1, folder=tmp_path / "cells", tell=told.append)
    assert again.records == found.records and not told                  # nothing was run twice
    found.write(plot=tmp_path / "f.png", json=tmp_path / "f.json")
    assert json.loads((tmp_path / "f.json").read_text()) == found.records


@pytest.mark.slow
def test_figure_2_puts_every_model_to_the_tasks_of_one_client():
    """Against the curves of that client, and by hand with the models at the end."""
    settings = {"data": "digits", "stages": 5, "split": {"k": 2}, "protocol": {"curves": True},
                "method": {"name": "ergnn", "rounds": 5, "epochs": 2, "hidden": 8,
                           "learning_rate": 0.03}}
    experiment = Experiment.model_validate(settings)
    found = power._experts(experiment, "client-1", 1)
    assert list(found) == [(r, n) for r in (4, 5) for n in ("client-1", "client-2", "global")]
    done = experiment.run().finish()
    lines = [{"client": n, "t": s.t, **result} for s in done.stages for by in s.found.values()
             for n, result in by.items()]
    curve = power._curve(lines, "client-1", 1)
    assert found[4, "client-1"] == curve[4, "epoch 2"]
    assert found[4, "global"] == curve[5, "received"]
    _, split, plan = experiment.open()
    expert = done.clients.workers["client-2"].client.model
    for j in range(2):
        graph, nodes, y, test = plan.held_out(split.parts["client-1"], j)
        right = expert(inputs(graph))[nodes].argmax(1).numpy() == y
        assert found[5, "client-2"][j] == pytest.approx(right[test].mean())
