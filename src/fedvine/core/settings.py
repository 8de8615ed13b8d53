"""Settings in text: TOML values, ``KEY=VALUE``, and errors that name the key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from inspect import isclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedvine.core.errors import FedvineError, near

M = TypeVar("M", bound=BaseModel)
SHOWN = 12      # keys that an error lists, at most


def literal(text: str) -> Any:
    """Return ``text`` read as a TOML value (``3``, ``0.5``, ``true``, ``["a"]``), else as text."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if list(found) == ["value"] else text


def assignment(setting: str) -> dict[str, Any]:
    """Return ``"method.rate=0.1"`` as ``{"method": {"rate": 0.1}}``.

    Raises :class:`FedvineError` without a key or without ``=``.
    """
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise FedvineError(f'"{setting}" sets nothing; write KEY=VALUE, such as method.rounds=5.')
    value = literal(text.strip())
    for key in reversed(keys):
        value = {key: value}
    return value


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with the values of ``over`` put in, table by table."""
    both = dict(base)
    for key, value in over.items():
        below = both.get(key)
        both[key] = (merged(below, value) if isinstance(below, Mapping) and
                     isinstance(value, Mapping) else value)
    return both


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by key; those of a table in it as ``table.key``."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isclass(inner) and issubclass(inner, BaseModel):
            usual = field.default       # of the field, which may differ from those of the table
            found |= {f"{name}.{key}": one if not isinstance(usual, BaseModel) else
                      one.merge_field_infos(one, default=getattr(usual, key))
                      for key, one in inner.model_fields.items()}
        else:
            found[name] = field
    return found


def flat(values: BaseModel) -> dict[str, Any]:
    """Return the values of a model by key, as :func:`fields` names them."""
    found: dict[str, Any] = {}
    for name, value in values:
        found |= ({f"{name}.{key}": one for key, one in value} if isinstance(value, BaseModel)
                  else {name: value})
    return found


def build(model: type[M], values: Any, where: str = "", under: str = "") -> M:
    """Return an instance of ``model``; raises :class:`FedvineError` with one sentence.

    ``where`` is the file that the sentence starts with, ``under`` a prefix of every key.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        text = sentence(error, model, under)
        raise FedvineError(f"{where}: {text}" if where else text) from error


def sentence(error: ValidationError, model: type[BaseModel], under: str = "") -> str:
    """Describe the first error, with its key and, for an unknown key, a near one."""
    first, *others = error.errors()
    path, inner = _path(model, first["loc"])
    if path[:1] == ["aggregate"]:       # a table of its own in files and on the command line
        under = ""
    key = under + ".".join(path)
    if first["type"] == "extra_forbidden":
        known = [under + ".".join([*path[:-1], name]) for name in (inner or model).model_fields]
        more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
        return (f'There is no key "{key}"{near(key, known)}; there are '
                f'{", ".join(known[:SHOWN])}{more}.')
    if first["type"] == "missing":
        return f'The key "{key}" is missing.'
    reason = first.get("ctx", {}).get("error")
    if isinstance(reason, FedvineError):
        return str(reason)
    if isinstance(reason, ValueError) and isinstance(first["input"], Mapping | BaseModel):
        return f"{key.rstrip('.')}: {reason}." if key else f"{reason}."    # of several keys
    reasons = [first, *(e for e in others if _path(model, e["loc"])[0] == path)]
    text = " or ".join(dict.fromkeys(e["msg"].replace("Input should", "should", 1)
                                     .removeprefix("Value error, ") for e in reasons))
    value = repr(first["input"])
    return f"{key} is {value if len(value) <= 80 else value[:77] + '...'}, but {text}."


def _path(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[
        list[str], type[BaseModel] | None]:
    """Return the keys of a place in ``model``, and the model that the last of them belongs to.

    Pydantic also names the member of a union that it tried; that is left out.
    """
    path: list[str] = []
    inner: type[BaseModel] | None = model
    for i, part in enumerate(place):
        last = i == len(place) - 1
        field = inner.model_fields.get(str(part)) if inner is not None else None
        if field is None:
            return ([*path, str(part)] if inner is not None and last else path), inner
        path.append(str(part))
        if last:
            break
        inner = next((a for a in (field.annotation, *get_args(field.annotation))
                      if isclass(a) and issubclass(a, BaseModel)), None)
    return path, inner
