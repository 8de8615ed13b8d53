"""Random numbers, look-ups, queries, units, settings and names of other packages."""

import sys
from typing import Annotated

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedvine.core import registry
from fedvine.core import rng as rng_module
from fedvine.core.errors import FedvineError
from fedvine.core.lookup import find, unique
from fedvine.core.replies import Query, code
from fedvine.core.settings import assignment, build, literal, merged
from fedvine.core.state import Client, World
from fedvine.core.units import clock, duration, seconds, size
from fedvine.federation.policy import Policy, shown
from fedvine.methods.edgebank import EdgeBank
from fedvine.rivals.dslr import DslrIsolated


def test_a_generator_is_a_philox_of_its_key():
    for place in ((0, "a"), (7, "client", 3, 1, 2, "step"), (b"x",)):
        plain = np.random.Generator(np.random.Philox(key=rng_module.key(*place)))
        mine = rng_module.rng(*place)
        assert plain.integers(0, 2**63, 9).tolist() == mine.integers(0, 2**63, 9).tolist()
        assert plain.normal(size=3).tolist() == mine.normal(size=3).tolist()


def test_what_a_client_draws_belongs_to_its_place_alone():
    """Stage, round, call, client, purpose and seed: each changes it, and nothing else does."""
    def drawn(name="ada", seed=7, place=(1, 2, 3), purpose="x"):
        client = Client(name, World(("ada", "bob"), seed, 4), b"secret" * 6)
        client.place = place
        return (client.rng(purpose).integers(1 << 60),
                int(torch.randint(1 << 60, (1,), generator=client.torch_rng(purpose))))

    others = [drawn(name="bob"), drawn(seed=8), drawn(place=(0, 2, 3)), drawn(place=(1, 1, 3)),
              drawn(place=(1, 2, 1)), drawn(purpose="y")]
    assert drawn() == drawn()
    for numbers in zip(drawn(), *others, strict=True):
        assert len(set(numbers)) == 1 + len(others)


LIMITS = {"int32": st.integers(-2**31, 2**31 - 1) | st.integers(-4, 4),
          "int64": st.integers(-2**63, 2**63 - 1) | st.integers(-4, 4),
          "uint64": st.integers(0, 2**64 - 1) | st.integers(2**64 - 4, 2**64 - 1)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LIMITS)
@given(data=st.data())
def test_as_a_dict(dtype, data):
    keys = sorted(data.draw(st.sets(LIMITS[dtype])))
    wanted = data.draw(st.lists(LIMITS[dtype] | (st.sampled_from(keys) if keys else st.nothing())))
    place = {key: i for i, key in enumerate(keys)}
    found = find(np.array(keys, dtype), np.array(wanted, dtype))
    assert found.dtype == np.int64
    assert found.tolist() == [place.get(key, -1) for key in wanted]


def test_of_equal_keys_the_first():
    assert find(np.array([1, 3, 3, 3, 5]), np.array([3, 5, 4, 3])).tolist() == [1, 4, -1, 1]


@given(st.lists(st.integers(-4, 4)), st.sampled_from([np.int32, np.int64]))
def test_each_key_is_there_once_in_order(keys, dtype):
    found = unique(np.array(keys, dtype).reshape(-1, 1))
    assert found.tolist() == sorted(set(keys)) and found.dtype == dtype


@pytest.mark.parametrize(("query", "number"), [
    (None, None), (Query("stage", 0), 0), (Query("stage", 7), 7), (Query("given"), -1),
    (Query("own", 0), -2), (Query("own", 5), -7)])
def test_a_query_and_its_integer(query, number):
    assert code(query) == number and Query.of_code(number) == query


def test_sizes_and_times():
    assert [size(n) for n in (0, 999, 1000, 1500, 12_300, 999_600, 1.3e9, 5e12)] == [
        "0 B", "999 B", "1.0 kB", "1.5 kB", "12 kB", "1.0 MB", "1.3 GB", "5.0 TB"]
    assert [seconds(n) for n in (0.07, 4.2, 95, 720, 40_000)] == [
        "0.07 s", "4.2 s", "95 s", "12 min", "11 h"]
    assert [clock(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]


def test_durations():
    assert [duration(t) for t in ("90s", "60m", "1.5h", "12", "2 min", ".5h", "0")] == [
        90, 3600, 5400, 12, 120, 1800, 0]
    assert duration("30d", ("h", "d")) == 30 * 86_400 and duration(" 2 w ", ("w",)) == 14 * 86_400
    for wrong in ("soon", "", "-3s", "1e3", "nan", "3 parsecs", "1.2.3", "²"):
        assert duration(wrong) is None
    assert duration("30d") is None and duration("30m", ("min",)) is None


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = Field(default=0.1, gt=0)
    least: float = 0.0

    @model_validator(mode="after")
    def _rate_is_above_the_least(self):
        if self.rate < self.least:
            raise ValueError("rate is below least; raise rate")
        return self


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Field(default_factory=Inner)
    maybe: Inner | None = None
    window: Annotated[int, Field(ge=1)] | None = None
    name: str


@pytest.mark.parametrize(("text", "value"), [
    ("3", 3), ("0.5", 0.5), ("1e-3", 0.001), ("true", True), ('["a", "b"]', ["a", "b"]),
    ('"3"', "3"), ("30d", "30d"), ("louvain", "louvain"), ("", ""), ("a b", "a b"),
    ("1\nother = 2", "1\nother = 2"), ("{k = 2}", {"k": 2})])
def test_a_value_is_read_as_toml_and_else_as_text(text, value):
    assert literal(text) == value
    assert type(literal(text)) is type(value)


def test_an_assignment_reaches_into_tables():
    assert assignment("method.window = 3") == {"method": {"window": 3}}
    assert assignment("data.source=SELECT a = 1") == {"data": {"source": "SELECT a = 1"}}


@pytest.mark.parametrize("setting", ["method", "=3", "method..window=3", ".=1", ""])
def test_what_sets_nothing_is_refused(setting):
    with pytest.raises(FedvineError, match="write KEY=VALUE"):
        assignment(setting)


def test_merging_keeps_what_is_not_named():
    base = {"a": {"x": 1, "y": 2}, "b": 1}
    assert merged(base, {"a": {"y": 3}, "b": {"z": 1}}) == {"a": {"x": 1, "y": 3}, "b": {"z": 1}}
    assert base == {"a": {"x": 1, "y": 2}, "b": 1}


@pytest.mark.parametrize(("values", "message"), [
    ({"name": "x", "inner": {"rtae": 1}},
     'exp.toml: There is no key "inner.rtae" (did you mean "inner.rate"?); there are inner.rate, '
     "inner.least."),
    ({"name": "x", "maybe": {"rtae": 1}},
     'exp.toml: There is no key "maybe.rtae" (did you mean "maybe.rate"?); there are maybe.rate, '
     "maybe.least."),
    ({"name": "x", "nmae": 1}, 'exp.toml: There is no key "nmae" (did you mean "name"?); '
     "there are inner, maybe, window, name."),
    ({}, 'exp.toml: The key "name" is missing.'),
    ({"name": "x", "inner": {"rate": -1}},
     "exp.toml: inner.rate is -1, but should be greater than 0."),
    ({"name": "x", "inner": {"rate": 1, "least": 2}},
     "exp.toml: inner: rate is below least; raise rate."),
    ({"name": "x", "window": 0},
     "exp.toml: window is 0, but should be greater than or equal to 1."),
    ({"name": 3}, "exp.toml: name is 3, but should be a valid string.")])
def test_an_error_is_one_sentence_with_file_key_and_way_out(values, message):
    with pytest.raises(FedvineError) as error:
        build(Outer, values, "exp.toml")
    assert str(error.value) == message


OTHER = '''
from typing import ClassVar

from fedvine.core.method import Method


class Mine(Method):
    """A method of somebody else."""
    name: ClassVar[str] = "mine"


class Bank(Method):
    """It would like to be the built-in one."""
    name: ClassVar[str] = "edgebank"


class Variant(Method):
    """Likewise, where that is one of several in a file."""
    name: ClassVar[str] = "dslr_isolated"
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with three entry points of one module, on the path."""
    info = tmp_path / "others-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text("[fedvine.methods]\n" + "".join(
        f"{name} = others_methods\n" for name in ("mine", "edgebank", "dslr_isolated")))
    (tmp_path / "others_methods.py").write_text(OTHER)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_name_that_is_used_here_is_not_another_packages(package):
    assert registry.method("mine").__module__ == "others_methods"
    assert registry.method("edgebank") is EdgeBank
    assert registry.method("dslr_isolated") is DslrIsolated
    known = registry.methods()
    assert (known["edgebank"], known["dslr_isolated"]) == (EdgeBank, DslrIsolated)
    assert "built-in" not in registry.first_lines("methods")["edgebank"]


def test_a_package_that_cannot_be_loaded_stops_no_list(package, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "others_methods", raising=False)
    (tmp_path / "others_methods.py").write_text("import not_there")
    assert "mine" not in registry.methods()
    assert "No module named 'not_there'" in registry.first_lines("methods")["mine"]
    with pytest.raises(FedvineError, match='"mine" of another package cannot be loaded'):
        registry.method("mine")


def test_a_policy_says_which_package_a_method_is_of(package):
    assert registry.package_of("mine") == "others 2.5"
    assert registry.package_of("edgebank") is None
    mine = registry.method("mine")()
    for fields in ({}, {"package": "others 2.4"}):
        for refused in (Policy.installed, lambda policy: policy.check(mine)):
            with pytest.raises(FedvineError, match=r'write package = "others 2.5"'):
                refused(Policy(methods={"mine": fields}))
    with pytest.raises(FedvineError, match="edgebank is fedvine's own; leave out package"):
        Policy(methods={"edgebank": {"package": "others 2.5"}}).installed()
    policy = Policy(methods={"mine": {"package": "others 2.5"}})
    policy.check(mine)
    assert 'mine (package "others 2.5")' in shown(policy)[0]
