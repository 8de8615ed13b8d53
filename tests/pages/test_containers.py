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
SITES = ("ewr", "jfk", "lga")
FLARES = {"startup", "local", "fedvine.json"}       # of a kit, what FLARE's half has

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


def test_the_images_packages_are_the_pinned_ones_with_hashes():
    text = (DEPLOY / "requirements.txt").read_text()
    found = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}$", text,
                            re.M))
    assert len(found) == text.count("==") > 80
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(),
                             re.M))
    assert "--require-hashes" in (DEPLOY / "Dockerfile").read_text()
    for name, version in pinned.items():
        assert found.get(name.lower().replace("_", "-"), version) == version
    assert {"nvflare", "cryptography", "duckdb", "numpy", "pyarrow"} <= found.keys()
    assert "torch" not in found


@pytest.mark.slow
def test_containers_of_the_demonstration_have_known_options_and_volumes_of_their_own():
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = file["services"]
    halves = {"hub": [], **{site: [f"{site}-socket:/run/site"] for site in SITES},
              **{f"{site}-flare": [f"{site}-socket:/run/site"] for site in SITES}}
    for name, shared in halves.items():
        one = services[name]
        verb, *rest = one["command"]
        assert options(rest) <= known(verb)
        assert one["volumes"] == [f"{name}:/data", *shared]
        assert one["cap_drop"] == ["ALL"] and one["read_only"] is True and "/tmp" in one["tmpfs"]
        assert one["pull_policy"] == "never" and "build" not in one
        assert "ports" not in one and "--any-method" not in rest
        # Who has a table has no network; who has one has no table.
        assert (one.get("network_mode") == "none") == (name in SITES)
    given = {v.split(":")[0] for v in services["kits"]["volumes"]}
    assert set(file["volumes"]) == given | {f"{site}-socket" for site in SITES}
    made = (DEPLOY / "Dockerfile").read_text()
    assert all(v.split(":")[1] in made for v in services["kits"]["volumes"])
    assert "/run/site" in made


def documents():
    return {one["kind"]: one for one in yaml.safe_load_all(
        (DEPLOY / "kubernetes.yaml").read_text())}


def test_the_pod_mounts_what_is_declared():
    pod = documents()["Deployment"]
    spec = pod["spec"]["template"]["spec"]
    declared = {volume["name"] for volume in spec["volumes"]}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert {m["name"] for m in container["volumeMounts"]} <= declared
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    for container in spec["containers"]:
        verb, *rest = container["args"]
        assert options(rest) <= known(verb) and "--any-method" not in rest
    own, flare = ({m["name"] for m in one["volumeMounts"]} for one in spec["containers"])
    assert own & flare == {"socket"}        # FLARE's half has neither the table nor the memory
    assert {"table", "memory"} <= own
    assert pod["spec"]["replicas"] == 1
    assert pod["spec"]["strategy"]["type"] == "Recreate"


def test_kits_that_were_begun_are_made_anew_and_whole_ones_stay(tmp_path):
    """Run the script with stand-ins for its two commands: no kit lies inside an older one."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {
            "python": 'case "$2" in *tables*) for a in EWR JFK LGA; do echo new > '
                      '"$3/$a.parquet"; done;; *) echo a key of the sites;; esac',
            "fedvine": 'case "$2" in init) mkdir HUB; echo "Root certificate AA";; '
                       'fingerprint) echo "a line of $3";; '
                       'pack) mkdir -p "$9/startup" "$9/local"; echo new > "$9/own.key"; '
                       'touch "$9/fedvine.json";; esac; case "$1" in join) echo "$@" >> '
                       f'{tmp_path}/joined; echo "source = \\"$4\\"" > "$2/site.toml";; esac'
            }.items():
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
        kit = tmp_path / "volumes" / site / "kit"
        assert {f.name for f in kit.iterdir()} == {"own.key", "site.toml", *FLARES}
        assert (kit / "site.toml").read_text() == 'source = "/data/table.parquet"\n'
        assert {f.name for f in (tmp_path / "volumes" / f"{site}-flare" / "kit").iterdir()
                } == FLARES
        assert (tmp_path / "volumes" / site / "table.parquet").exists()
    for line in (tmp_path / "joined").read_text().splitlines():
        assert options(line.split()) <= known("join") and "--policy" in line
        assert {"--secret", "--roster", "--confirmed"} <= options(line.split())
    assert {f.name for f in (tmp_path / "volumes" / "hub").iterdir()} == {"HUB", "experiment.toml"}
    assert list((tmp_path / "volumes" / "hub" / "HUB").iterdir()) == []
    assert "already" in make()


def test_the_pod_unpacks_its_kit_once_and_again_after_a_failure(tmp_path):
    pod = documents()["Deployment"]
    shell, flag, line = pod["spec"]["template"]["spec"]["initContainers"][0]["command"]
    line = line.replace("/data", str(tmp_path)).replace("/secret", str(tmp_path)).replace(
        " /flare", f" {tmp_path}/flare")
    (tmp_path / "flare").mkdir()
    (tmp_path / "kit.tgz").write_text("cut off")
    assert subprocess.run([shell, flag, line], check=False, capture_output=True).returncode != 0
    assert not (tmp_path / "kit").exists()
    with tarfile.open(tmp_path / "kit.tgz", "w:gz") as packed:
        for name in ("site.toml", "own.key", *FLARES):
            packed.add(DEPLOY / "make-kits", name)
    for _ in range(2):
        subprocess.run([shell, flag, line], check=True)
        assert {f.name for f in (tmp_path / "kit").iterdir()} == {"site.toml", "own.key", *FLARES}
        assert {f.name for f in (tmp_path / "flare" / "kit").iterdir()} == FLARES
        (tmp_path / "kit.tgz").write_text("not read again")
