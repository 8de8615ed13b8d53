"""Settings: values as TOML reads them, and errors that name the key and a near one."""

from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedvine.core.errors import FedvineError
from fedvine.core.settings import assignment, build, literal, merged


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
