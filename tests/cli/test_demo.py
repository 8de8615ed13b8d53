"""The tables and the plot of the first look, on a stream of 480 edges."""

from io import StringIO

import numpy as np
import pytest
from matplotlib import image
from rich.console import Console

from fedvine.cli import demo
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.results.pictures import COLOURS
from fedvine.testing import PROTOCOL, tiny_case


def runs(place):
    """Finished, or opened again where they were finished before."""
    split, plan = tiny_case()
    return {method.name: run(method, split, plan, seed=1, protocol=PROTOCOL,
                             out=place / method.name).finish()
            for method in (FedLinkPlus.tiny(), FedLink.tiny(), EdgeBank())}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    runs(folder)
    return folder


def shown(table):
    console = Console(width=200, file=StringIO())
    console.print(table)
    return console.file.getvalue()


@pytest.mark.slow
def test_the_table_holds_every_client_and_the_mean_as_the_summary_has_them(place):
    made = runs(place)
    lines = shown(demo.table(made)).splitlines()
    assert len(lines) == 1 + 3 * 4              # a heading; 3 clients and the mean, three times
    for i, client in enumerate(("ada", "bob", "cyd", "mean")):
        for line, (method, one) in zip(lines[1 + 3 * i:], made.items(), strict=False):
            found = one.scores["test"]
            scores = found["mean"] if client == "mean" else found["client"][client]
            words = line.split()
            assert words[-5:] == [method, *(f"{scores[k]:.3f}" for k in
                                            ("auc_new", "mrr_new", "auc", "mrr"))]
    assert [lines[1 + 3 * i].split()[0] for i in range(4)] == ["ada", "bob", "cyd", "mean"]


@pytest.mark.slow
def test_the_plot_has_a_line_for_each_method_and_is_the_same_when_the_runs_are_opened_again(
        place, tmp_path):
    first, again = tmp_path / "first.png", tmp_path / "again.png"
    fresh = tmp_path / "fresh"
    demo.plot(runs(fresh), first)
    demo.plot(runs(fresh), again)                       # these answered without work
    pixels = image.imread(first)[..., :3]
    np.testing.assert_array_equal(pixels, image.imread(again)[..., :3])
    for colour in COLOURS[:len(demo.METHODS)]:          # the lines, and not the legend alone
        rgb = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
        near = np.abs(pixels - rgb).max(2) < 0.02
        for half in np.split(near[:len(near) // 2 * 2], 2):
            assert half.sum() > 500
    assert not list(tmp_path.glob("*.tmp"))


def test_forecasts_name_five_items_best_first_and_say_which_are_new(place):
    found = Forecasts(runs(place)["fedlink_plus"])
    part = found.parts["ada"]
    lines = shown(demo.forecasts(found, "ada", part.src_ids[0])).splitlines()
    best = found.top("ada", part.src_ids[0], 5)
    assert len(lines) == 6
    for line, (item, score, known) in zip(lines[1:], (one[:3] for one in best), strict=True):
        assert line.split() == [*item.split(), f"{score:.2f}",
                                *("flown before from here" if known else "new").split()]
