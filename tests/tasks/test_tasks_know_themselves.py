"""Outside ``tasks/`` nobody asks which task it has: a test that walks the syntax trees."""

import ast
from pathlib import Path

import pytest

import fedvine
from fedvine.tasks.task import every

SOURCE = Path(fedvine.__file__).parent
NAMES = {kind.model_fields["task"].default for kind in every()}
CLASSES = {kind.__name__ for kind in every()} | {"TaskPlan"}
FILES = [f for f in sorted(SOURCE.rglob("*.py")) if SOURCE / "tasks" not in f.parents]


def a_task(node: ast.AST) -> bool:
    """Whether an expression is a task's name: ``x.task``, ``x["task"]``, ``x.get("task", ...)``."""
    if isinstance(node, ast.Attribute):
        return node.attr == "task"
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "task"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "get" and bool(node.args) and isinstance(
            node.args[0], ast.Constant) and node.args[0].value == "task"
    return False


def branches(tree: ast.AST) -> list[int]:
    """Return the lines that compare, match or look up a task's name or class."""
    found = []
    for node in ast.walk(tree):
        inner = list(ast.walk(node))
        named = any(isinstance(n, ast.Name | ast.Attribute)
                    and getattr(n, "id", getattr(n, "attr", "")) in CLASSES for n in inner)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = {n.value for n in inner if isinstance(n, ast.Constant)
                     and isinstance(n.value, str)}
            bad = any(map(a_task, sides)) and (bool(texts & NAMES) or all(map(a_task, sides)))
            bad |= named and any(isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
                                 for op in node.ops)
        elif isinstance(node, ast.Match):
            bad = a_task(node.subject)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            bad = node.func.id in ("isinstance", "issubclass") and named
        elif isinstance(node, ast.Dict):
            keys = {k.value for k in node.keys if isinstance(k, ast.Constant)}
            bad = len(keys) > 1 and keys <= NAMES
        elif isinstance(node, ast.Subscript):
            bad = a_task(node.slice)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            bad = a_task(node.test)
        else:
            bad = False
        found += [node.lineno] if bad else []
    return sorted(found)


@pytest.mark.slow
def test_no_branch_on_a_task():
    found = {str(f.relative_to(SOURCE)): branches(ast.parse(f.read_text("utf-8"))) for f in FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("code", [
    'if method.task == "link": pass', 'x = 1 if p["task"] != "node" else 2',
    'p.get("task", "link") == "label"', "isinstance(plan, TaskPlan)",
    "isinstance(p, tasks.LinkPrediction)", 'd = {"link": 1, "node": 2}', "d[method.task]",
    "type(p) is ClassIncremental", "match m.task:\n    case _: pass", "a.task != b.task",
    'm.task in ("link", "node")'])
def test_the_test_sees_a_branch(code):
    assert branches(ast.parse(code)) == [1]


def test_the_test_lets_other_code_be():
    assert branches(ast.parse('{"node": 1, "t": 2}; x.tasks == 3; of(m).data == "graph"; '
                              'cache.get("task") != place')) == []
