"""kill -9 while a run goes on: given again, it comes to the very same scores."""

import json
import subprocess
import sys
import time

from wrong import COLUMNS

from fedvine.rng import rng

KILLS, STAGES = 5, 40


def table(edges):
    """Two towns whose users have tastes, and sometimes travel."""
    draw = rng("kill", "table")
    user = draw.integers(0, 30, edges)
    item = (user + draw.integers(0, 4, edges)) % 25
    home = (user + (draw.random(edges) < 0.1)) % 2
    return "who,what,at,where\n" + "".join(
        f"u{u},i{i},{10 * n},{'ab'[h]}\n"
        for n, (u, i, h) in enumerate(zip(user, item, home, strict=True)))


def start(folder, out):
    return subprocess.Popen(
        [sys.executable, "-m", "fedvine", "run", "fedlink", "--data", "good.csv", *COLUMNS,
         "--stages", "30", "--set", "method.rounds=2", "--set", "method.width=8", "--set",
         "method.capacity=60", "--out", out],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def ended(process):
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


def stage(run):
    """The newest stage that is saved, 0 if none."""
    saves = [int(p.name[:6]) + 1 for p in run.glob("saves/[0-9]*")]
    return max(saves, default=0)


def test_a_run_that_is_killed_again_and_again_comes_to_the_same_scores(tmp_path):
    (tmp_path / "good.csv").write_text(table(30 * STAGES))
    ended(start(tmp_path, "whole"))
    seed, killed, at = time.time_ns(), tmp_path / "killed", []
    draw = rng(seed, "moments")
    for kill in range(KILLS):
        process = start(tmp_path, "killed")
        # The first one falls before anything is saved or soon after; the others further on, so
        # that all of them come before the end.
        while process.poll() is None and stage(killed) < kill * STAGES // (KILLS + 2):
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 1.5 if kill == 0 else 0.15))
        process.kill()
        said = process.communicate()[1]
        assert process.returncode == -9, said           # it was still at work
        at.append(stage(killed))
    assert at == sorted(at)                             # what was saved stays saved
    ended(start(tmp_path, "killed"))
    whole = tmp_path / "whole"
    scores = [json.loads((f / "summary.json").read_text())["scores"] for f in (whole, killed)]
    assert scores[0] == scores[1], f"seed {seed}, killed at stages {at}"
    assert scores[0]["test"]["mean"]
    lines = [(f / "metrics.jsonl").read_text().splitlines() for f in (whole, killed)]
    assert len(lines[0]) > STAGES
    for ours, theirs in zip(*lines, strict=True):
        assert ours == theirs, f"seed {seed}, killed at stages {at}"
