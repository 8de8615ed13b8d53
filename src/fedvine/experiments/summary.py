"""The scores of a run in its log, and the summary at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedvine.core.state import Memory
from fedvine.data.dates import stage_names
from fedvine.experiments.costs import Costs
from fedvine.experiments.loop import StageScores
from fedvine.experiments.prepare import Prepared
from fedvine.experiments.run_files import read_lines
from fedvine.tasks.drift import drift
from fedvine.tasks.task import REPLICATES, Task


def lines(stage: StageScores, protocol: Task, plan: Any) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl`` for the scores of a stage."""
    return [{"t": stage.t, "stage": s, "period": protocol.period(plan, stage.t, s),
             "client": name, **result}
            for s, by in stage.found.items() for name, result in by.items()]


def logged(folder: Path) -> list[StageScores]:
    """Return the scores of the stages in a run folder's ``metrics.jsonl``, by stage."""
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for line in read_lines(folder, "metrics.jsonl"):
        found.setdefault(line["t"], {}).setdefault(line["stage"], {})[line["client"]] = {
            key: line[key] for key in ("n", "scores", "classes", "parts", "drift", REPLICATES)
            if key in line}
    return [StageScores(t, by) for t, by in sorted(found.items())]


def summary(ready: Prepared, server: Memory, stages: list[StageScores], costs: Costs
            ) -> dict[str, Any]:
    """Return ``summary.json`` of a run that has ended: scores, costs, sizes and the report."""
    method, plan = ready.method, ready.plan
    found = {"scores": ready.protocol.summary(stages, plan), "stages": len(plan),
             **costs.summary(), "sizes": {name: len(part) for name, part in ready.parts.items()}}
    if names := ready.class_names:
        found["classes"] = list(names)
    if replicates := ready.protocol.replicates_of(stages, plan):
        found[REPLICATES] = replicates
    if ready.dates:
        found |= {"dates": True, "bounds": list(getattr(plan, "bounds", ()))}
    bounds: Any = getattr(plan, "bounds", ())
    if len(bounds) and not found["scores"]["test"]["client"]:
        found["unscored"] = {"step": ready.step, "times": [bounds[0], bounds[-1]]}
    log = [line for stage in stages for line in lines(stage, ready.protocol, plan)]
    if any("drift" in line for line in log):
        found["drift"] = drift(log, ready.protocol.compared, ready.protocol.scores, method.name,
                               stage_names(found.get("bounds")))
    if ready.notes:
        found["notes"] = list(ready.notes)
    if ready.self_loops is not None:
        found["self_loops_left_out"] = ready.self_loops
    stated = method.privacy(sum(map(method.rounds_at, range(len(plan)))))
    found |= {"privacy": stated} if stated else {}
    report = method.report(server)
    return found | ({"report": report} if report else {})
