"""Completion: the names that a shell is told, in real bash too, and a help without clutter."""

import inspect
import os
import shutil
import subprocess
import sys

import pytest

from fedvine.cli import completion
from fedvine.cli import main as cli
from fedvine.core import registry


def offered(monkeypatch, capsys, line):
    """What the script in bash is told about the last word of a line."""
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv(completion.ASKED, "complete_bash")
    with pytest.raises(SystemExit):
        cli.main([])
    return capsys.readouterr().out.split()


def test_method_names_are_found_without_importing_a_method():
    assert registry.names("methods") == sorted(registry.methods())
    code = ("import sys; from fedvine.cli import completion as c; c.runnable(), c.shown()\n"
            "rooms = 'fedvine.methods.', 'fedvine.rivals.'\n"
            "assert not [m for m in sys.modules if m.startswith(rooms)]\n"
            "assert not {'torch', 'numpy', 'pandas'} & sys.modules.keys()")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("room", ["methods", "datasets", "partitions"])
def test_the_list_has_the_first_lines_without_importing_what_it_lists(room):
    things = registry.methods() if room == "methods" else {
        name: registry.find(room, name) for name in registry.names(room)}
    assert registry.first_lines(room) == {
        name: (inspect.getdoc(thing) or "").split("\n")[0]
        for name, thing in sorted(things.items())}
    code = ("import sys; from fedvine.core import registry; registry.first_lines(sys.argv[1])\n"
            "assert not {'torch', 'numpy', 'pandas'} & sys.modules.keys()")
    subprocess.run([sys.executable, "-c", code, room], check=True)


@pytest.mark.parametrize(("line", "some"), [
    ("fedvine ex", {"explain", "export"}),
    ("fedvine kit wi", {"withdraw"}),
    ("fedvine run fedlink_", {"fedlink_local", "fedlink_plus"}),
    ("fedvine run au", {"auto"}),
    ("fedvine run fedlink --data fl", {"flights", "flickr"}),
    ("fedvine run fedlink --dat", {"--data", "--database"}),
    ("fedvine run fedlink --split h", {"hash"}),
    ("fedvine compare fedlink edge", {"edgebank"}),
    ("fedvine tune power-t", {"power-table2"}),
    ("fedvine reproduce fedlink-t", {"fedlink-table1"}),
    ("fedvine show fli", {"flights"}),
    ("fedvine completion ", {"bash", "zsh", "fish"}),
])
def test_what_begins_with_the_word_is_offered(monkeypatch, capsys, line, some):
    found = offered(monkeypatch, capsys, line)
    assert some <= set(found)
    assert all(name.startswith(line.split(" ")[-1]) for name in found)


def test_where_a_file_is_wanted_the_shell_is_left_to_name_files(monkeypatch, capsys):
    assert offered(monkeypatch, capsys, "fedvine predict ru") == []
    assert offered(monkeypatch, capsys, "fedvine run ./my") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_by_the_printed_script(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["completion", "bash"])
    assert not ended.value.code
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    fedvine = tmp_path / "fedvine"
    fedvine.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedvine "$@"\n')
    fedvine.chmod(0o755)
    pressed = (f"source {script}; COMP_WORDS=(fedvine run edgeb); COMP_CWORD=2; "
               '_fedvine_completion fedvine; echo "${COMPREPLY[@]}"; complete -p fedvine')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(["bash", "--norc", "-c", pressed], env={**os.environ, "PATH": path},
                          capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["edgebank",
                                 "complete -o default -F _fedvine_completion fedvine"]


def test_an_unknown_shell_is_one_sentence_and_help_has_one_line_more(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["completion", "tcsh"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "bash" in told
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = capsys.readouterr().out
    assert "--install-completion" not in told
    assert "Print the script that completes" in told
