"""The settings that all tasks have."""

from __future__ import annotations

from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)


class Protocol(BaseModel):
    """Base of a task's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = ""

    drift: bool | None = Field(default=None, description="measure how new each stage is, and "
                               "simple rivals on its queries; if not said where the plan has live "
                               "stages")

    def drifts(self, plan: Any) -> bool:
        """Return whether drift is measured, with this plan."""
        return bool(getattr(plan, "living", False)) if self.drift is None else self.drift

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out ``drift`` where it is not said.

        Runs and kept cells from before there was such a field keep their identity.
        """
        found = dump(self)
        if found.get("drift", 0) is None:
            del found["drift"]
        return found
