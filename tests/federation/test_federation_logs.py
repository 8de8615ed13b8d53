"""What processes of a federation leave in a kit stays bounded while they run."""

import os
import subprocess
import sys

from fedvine.federation import launch as logs

JOB = "00da86d0-b7b0-4f58-959e-bf2764d2aa{:02d}"


def test_a_process_goes_on_in_a_log_that_was_emptied(tmp_path):
    log = tmp_path / "client.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-uc", "while line := input(): print(line)"],
            stdin=subprocess.PIPE, stdout=out, text=True)
    try:
        process.stdin.write("x" * 500 + "\n")
        process.stdin.flush()
        while log.stat().st_size < 501:
            pass
        logs.trim(log, most=501)
        assert log.stat().st_size == 501                    # no more than it may have
        logs.trim(log, most=500)
        assert (tmp_path / "client.log.1").read_text() == "x" * 500 + "\n"
    finally:
        process.communicate("after\n\n")
    assert log.read_text() == "after\n"
    logs.trim(tmp_path / "none.log")
    assert not (tmp_path / "none.log.1").exists()


def test_folders_of_old_jobs_go_and_nothing_else(tmp_path):
    for n in range(6):
        (tmp_path / JOB.format(n) / "app").mkdir(parents=True)
        os.utime(tmp_path / JOB.format(n), (n, n))
    for other in ("memory", "startup", "not-a-job-at-all-x"):
        (tmp_path / other).mkdir()
    (tmp_path / JOB.format(9)).write_text("a file")
    logs.drop_jobs(tmp_path, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([
        JOB.format(4), JOB.format(5), JOB.format(9), "memory", "startup", "not-a-job-at-all-x"])


def test_a_kit_is_tidied(tmp_path):
    for name in ("client.log", "audit.log", "site.toml"):
        (tmp_path / name).write_bytes(b"x" * (logs.MOST + 1))
    logs.tidy(tmp_path, tmp_path / "client.log")
    assert {p.name: p.stat().st_size for p in tmp_path.iterdir()} == {
        "client.log": 0, "client.log.1": logs.MOST + 1, "audit.log": 0,
        "audit.log.1": logs.MOST + 1, "site.toml": logs.MOST + 1}
    logs.tidy(tmp_path / "not there", tmp_path / "no.log")
