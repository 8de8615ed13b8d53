"""The settings that all tasks have."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

REPLICATES = "replicates"       # the setting that changes no score


class Protocol(BaseModel):
    """Base of a task's settings.

    ``later`` names the settings that were added later, with the behaviour of before as default.
    ``revision`` is raised when the same settings give other scores, so that kept cells of an
    earlier one are not taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    later: ClassVar[tuple[str, ...]] = ("drift",)
    revision: ClassVar[int] = 1

    task: str = ""

    drift: bool | None = Field(default=None, description="measure how new each stage is, and "
                               "simple rivals on its queries; if not said where the plan has live "
                               "stages")
    replicates: int = Field(default=0, ge=0, le=10_000, description="bootstrap replicates of the "
                            "test period's scores over users, for intervals (fedvine compare sets "
                            "it); it changes no score")

    def drifts(self, plan: Any) -> bool:
        """Return whether drift is measured, with this plan."""
        return bool(getattr(plan, "living", False)) if self.drift is None else self.drift

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings in ``later`` at their default: runs and cells keep their identity."""
        fields = type(self).model_fields
        same = {name for name in (*self.later, REPLICATES)
                if getattr(self, name) == fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in same}
