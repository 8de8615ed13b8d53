"""The audit reads from a record what is there, and nothing where protection takes it away."""


import pytest
from toys import changed

from fedvine import testing
from fedvine.cli import main as cli
from fedvine.engines.faults import RecordingClients
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.methods.power import Power
from fedvine.results import audit as attacks
from fedvine.results.audit import PROTECTION, audit, page, recorded, table

SMALL = {"steps": 24, "rate": 60.0}
DATA = {"source": "synthetic", "options": SMALL}


def experiment(name, data=None, **fields):
    return Experiment.model_validate({"method": {"name": name, **fields}, "data": data or DATA})


def quiet(line):
    pass


@pytest.mark.slow
def test_prototypes_are_read_back_exactly_and_noise_ends_it():
    def found(fields):
        method = changed(Power.tiny(), **{**PROTECTION["power"]["off"], **fields})
        return attacks.prototypes(run(method, *testing.tiny_graphs(), seed=7,
                                      engine=RecordingClients).finish())

    plain, noise, sums = map(found, PROTECTION["power"].values())
    assert plain.value == 1.0 and plain.chance == 0.0 and plain.of == 24
    assert noise.value == 0.0
    assert sums.value < 0.5         # but a class that one client alone has is its own mean


def test_rows_of_lone_neighbours_are_those_of_sums_over_one():
    small = experiment("dgcolearn", rounds=1, hidden=4)
    off = recorded(small, {"aggregate": {"min_group": 1}})
    found = attacks.lone_neighbours(off)
    assert found.value > 0.05 and found.chance < found.value / 2
    assert attacks.lone_neighbours(recorded(small, {"aggregate": {"min_group": 3}})).value == 0.0


@pytest.mark.parametrize(("name", "low", "high"), [("edgebank", 0.99, 1.0),
                                                   ("popularity", 0.3, 0.7)])
def test_membership_is_what_the_scores_tell(name, low, high):
    """Seen before is membership itself; how popular an item is tells nothing of it."""
    found = attacks.membership(recorded(experiment(name), {}))
    assert low <= found.value <= high and found.chance == 0.5 and found.of > 100


@pytest.mark.slow
def test_rows_that_travel_are_read_by_the_server():
    done = audit(experiment("fedlink_plus", rounds=2, sampled=50, stages=2), "small", quiet)
    rows = done.found["travelling rows"]
    assert rows["off"].value > 2 * rows["off"].chance and rows["secure sums"].value == 0.0
    alone = done.found["numbers of one client in a sum"]
    assert alone["off"].value == 1.0 > alone["secure sums"].value
    assert "travelling rows" in page([done], "fedvine audit small.toml")
    assert table(done)[0] == "| attack | chance | off | secure sums |"


def test_a_record_has_every_message():
    made = recorded(experiment("popularity"), {})
    assert isinstance(made.clients, RecordingClients)
    places = {letter.place for letter in made.clients.letters}
    assert len(made.clients.letters) == 3 * len(places) > 0
    assert {x.client for x in made.clients.letters} == set(made.clients.names)


def test_the_command(tmp_path, capsys):
    (tmp_path / "small.toml").write_text(
        'method = "popularity"\n[data]\nsource = "synthetic"\noptions = '
        '{steps = 24, rate = 60.0}\n')
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(tmp_path / "small.toml"), "--markdown", str(tmp_path)])
    assert not ended.value.code
    assert "| membership by score | 0.500 |" in capsys.readouterr().out
    assert "## small: `popularity`" in (tmp_path / "audit.md").read_text()
