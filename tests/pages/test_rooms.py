"""Rooms of the package: one direction, complete faces, and files that stand alone."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedvine

SOURCE = Path(fedvine.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(f.parent for f in FILES if f.name == "__init__.py" and "= lazy(" in f.read_text())


def test_the_package_holds_rooms_and_hardly_any_file():
    assert {f.name for f in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "testing.py"}


@pytest.mark.parametrize("room", ROOMS, ids=lambda r: str(r.relative_to(SOURCE)))
def test_a_face_names_what_is_there_in_order(room):
    name = "fedvine." + ".".join(room.relative_to(SOURCE).parts)
    face = importlib.import_module(name)
    tree = ast.parse((room / "__init__.py").read_text())
    typed = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             and (node.module or "").startswith(name) for alias in node.names} - {"lazy"}
    assert face.__all__ == dir(face) == sorted(typed)
    for public in face.__all__:
        assert getattr(face, public) is not None
        assert not (room / f"{public}.py").exists(), f"{public} is a file of that room, too"
    with pytest.raises(AttributeError, match="nobody"):
        face.nobody  # noqa: B018


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_inside_the_package_files_are_imported_and_never_faces(file):
    faces = {"fedvine." + ".".join(r.relative_to(SOURCE).parts): r for r in ROOMS}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in faces:
            room = faces[node.module]
            for alias in node.names:
                assert (room / f"{alias.name}.py").exists() or (room / alias.name).is_dir(), (
                    f"{file} takes {alias.name} from the face of {node.module}")


@pytest.mark.slow
def test_every_file_can_be_imported_alone():
    """In a process of its own each, forked from one that has only the outside packages."""
    names = [m.name for m in pkgutil.walk_packages(fedvine.__path__, "fedvine.")
             if not m.name.endswith("__main__")]
    code = ("import os, sys, importlib\n"
            "for name in sys.argv[1:]:\n"
            "    try:\n"
            "        importlib.import_module(name)\n"
            "    except BaseException:\n"
            "        pass\n"              # its child says so
            "for name in [m for m in sys.modules if m.split('.')[0] == 'fedvine']:\n"
            "    del sys.modules[name]\n"
            "failed = []\n"
            "for name in sys.argv[1:]:\n"
            "    child = os.fork()\n"
            "    if not child:\n"
            "        try:\n"
            "            importlib.import_module(name)\n"
            "        except BaseException as error:\n"
            "            print(name, type(error).__name__, error, flush=True)\n"
            "            os._exit(1)\n"
            "        os._exit(0)\n"
            "    failed += [name] if os.waitpid(child, 0)[1] else []\n"
            "sys.exit(len(failed))\n")
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True,
                          env={**os.environ}, check=False)
    assert done.returncode == 0, done.stdout
