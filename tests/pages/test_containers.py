"""The files of deploy/: what they name is there, and commands have the options that they give."""

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from fedvine.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="deploy/ is not beside the tests")


def options(command: list[str]) -> set[str]:
    return {word for word in command if word.startswith("--")}


def known(name: str) -> set[str]:
    return {option for parameter in get_command(app).commands[name].params
            for option in parameter.opts}


def test_what_the_image_copies_is_there_and_not_ignored():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = {path for line in lines if line.startswith("COPY") for path in line.split()[1:-1]}
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
            if line.startswith("!")}
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)
    assert re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.M)


def test_the_image_runs_without_rights():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert lines.index("USER 10001") < lines.index('ENTRYPOINT ["fedvine"]')


@pytest.mark.slow
def test_containers_of_the_demonstration_have_known_options_and_volumes_of_their_own():
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = file["services"]
    for name in ("hub", "ewr", "jfk", "lga"):
        verb, *rest = services[name]["command"]
        assert options(rest) <= known(verb)
        assert services[name]["volumes"] == [f"{name}:/data"]
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["pull_policy"] == "never" and "build" not in services[name]
        assert "ports" not in services[name]
    assert set(file["volumes"]) == {v.split(":")[0] for v in services["kits"]["volumes"]}
    made = (DEPLOY / "Dockerfile").read_text()
    assert all(v.split(":")[1] in made for v in services["kits"]["volumes"])


def test_the_pod_mounts_what_is_declared():
    _, pod = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    spec = pod["spec"]["template"]["spec"]
    declared = {volume["name"] for volume in spec["volumes"]}
    join, kit = spec["containers"][0], spec["initContainers"][0]
    for container in (join, kit):
        assert {m["name"] for m in container["volumeMounts"]} <= declared
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    verb, *rest = join["args"]
    assert options(rest) <= known(verb)
    named = {e["name"] for e in join["env"]}
    assert {word[2:-1] for word in rest if word.startswith("$(")} == named
    assert pod["spec"]["replicas"] == 1
    assert pod["spec"]["strategy"]["type"] == "Recreate"


def test_the_kits_script_is_plain_shell():
    text = (DEPLOY / "make-kits").read_text()
    assert text.startswith("#!/bin/sh\n")
    assert "set -eu" in text
    used = set(re.findall(r"fedvine kit (\w+)", text))
    assert used <= set(get_command(app).commands["kit"].commands)


def test_kits_that_were_begun_are_made_anew_and_whole_ones_stay(tmp_path):
    """Run the script with stand-ins for its two commands: no kit lies inside an older one."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {
            "python": 'for a in EWR JFK LGA; do echo new > "$3/$a.parquet"; done',
            "fedvine": 'case "$2" in init) mkdir HUB; echo "Root certificate AA";; '
                       'pack) mkdir "$9"; echo new > "$9/key";; esac'}.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    for folder in ("hub/HUB.part", "ewr/kit", "jfk"):
        (tmp_path / "volumes" / folder).mkdir(parents=True)
    (tmp_path / "volumes" / "ewr" / "kit" / "old").touch()
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}

    def make():
        return subprocess.run([DEPLOY / "make-kits", tmp_path / "volumes"], env=environment,
                              check=True, capture_output=True, text=True).stdout

    make()
    for site in ("ewr", "jfk", "lga"):
        assert [f.name for f in (tmp_path / "volumes" / site / "kit").iterdir()] == ["key"]
        assert (tmp_path / "volumes" / site / "table.parquet").exists()
    assert {f.name for f in (tmp_path / "volumes" / "hub").iterdir()} == {"HUB", "experiment.toml"}
    assert list((tmp_path / "volumes" / "hub" / "HUB").iterdir()) == []
    assert "already" in make()


def test_the_pod_unpacks_its_kit_once_and_again_after_a_failure(tmp_path):
    _, pod = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    shell, flag, line = pod["spec"]["template"]["spec"]["initContainers"][0]["command"]
    line = line.replace("/data", str(tmp_path)).replace("/secret", str(tmp_path))
    (tmp_path / "kit.tgz").write_text("cut off")
    assert subprocess.run([shell, flag, line], check=False, capture_output=True).returncode != 0
    assert not (tmp_path / "kit").exists()
    with tarfile.open(tmp_path / "kit.tgz", "w:gz") as packed:
        packed.add(DEPLOY / "make-kits", "site.toml")
    for _ in range(2):
        subprocess.run([shell, flag, line], check=True)
        assert [f.name for f in (tmp_path / "kit").iterdir()] == ["site.toml"]
        (tmp_path / "kit.tgz").write_text("not read again")
