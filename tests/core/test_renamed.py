"""Names of the release before: they are read, and the reader is told once in a sentence."""

import json

import pytest

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.core.settings import build
from fedvine.experiments.experiment import Experiment
from fedvine.results import kept


def test_an_old_field_is_read_with_one_sentence():
    with pytest.warns(FutureWarning, match=r"^method\.rate is called method\.learning_rate now; "):
        made = fv.FedLink(rate=0.5)
    assert made.learning_rate == 0.5


def test_old_and_new_together_are_refused():
    wanted = {"data": "flights", "method": {"name": "fedlink", "rate": 0.1, "learning_rate": 0.2}}
    with pytest.raises(FedvineError, match=r"^method\.rate is the old name of method\.learning_"):
        build(Experiment, wanted)


def test_a_field_that_was_never_there_is_unknown_as_before():
    with pytest.raises(ValueError, match="rate"):
        fv.EdgeBank(rate=0.1)


@pytest.mark.parametrize(("old", "new"), [
    ("Links", "LinkPrediction"), ("Labels", "SnapshotClassification")])
def test_old_public_names_are_found(old, new):
    with pytest.warns(FutureWarning, match=f"fedvine.{old} is called fedvine.{new} now"):
        assert getattr(fv, old) is getattr(fv, new)


def test_kept_cells_are_read_under_either_name(tmp_path):
    line = {"key": "0" * 16, "method": "fedlink", "seed": 0, "content": "c", "summary": {},
            "settings": {"method": {"rate": 0.1, "rounds": 3}}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    assert kept.read(tmp_path / "a.jsonl")[0]["settings"]["method"] == {
        "learning_rate": 0.1, "rounds": 3}
