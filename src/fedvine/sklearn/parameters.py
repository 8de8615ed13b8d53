"""The parameters that both estimators share: the method and its fields."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import build

_FIELD = "method__"


class OfMethod(BaseEstimator):
    """An estimator whose parameter ``method`` is a method of fedvine, or its name.

    The method's fields are parameters, too: ``method__rounds`` is the field ``rounds``, so that a
    search can vary it.
    """

    method: Any
    random_state: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with ``deep`` the method's fields, too."""
        found = super().get_params(deep=False)
        if deep:
            try:
                values = self._method().model_dump()
            except FedvineError:    # of a name that no method has; fit says so
                values = {}
            found |= {_FIELD + field: value for field, value in values.items()}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also ``method__FIELD``; return the estimator.

        Raises :class:`ValueError` for a name that is none, or a value that a field does not take.
        """
        fields = {name.removeprefix(_FIELD): value for name, value in params.items()
                  if name.startswith(_FIELD)}
        super().set_params(**{name: value for name, value in params.items()
                              if not name.startswith(_FIELD)})
        if fields:
            now = self._method()
            self.method = build(type(now), {**now.model_dump(exclude_unset=True), **fields},
                                under="method.")
        return self

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            return self.method
        if not isinstance(self.method, str):
            raise FedvineError(f"method is {self.method!r}, but must be a method of fedvine, or "
                               "the name of one.")
        return build(registry.method(self.method), {}, under="method.")

    def _seed(self) -> int:
        if self.random_state is None:
            return 0
        try:
            seed = int(self.random_state)
        except (TypeError, ValueError):
            seed = -1
        if seed < 0:
            raise FedvineError(f"random_state is {self.random_state!r}, but must be a whole number "
                               "from 0, or None for 0.")
        return seed
