"""Print the rooms of src/fedvine, their levels, which room imports which, and circles.

A room is a folder or a file directly in src/fedvine. It is on level 1 if it imports no other room,
and else one level above the highest room that it imports. Imports inside functions count. Imports
under TYPE_CHECKING do not, and are listed apart, without those by which a room's ``__init__.py``
lists its public names. Files, lines and statements are counted by room. The exit status is 1 if
rooms or files import each other in a circle, if there are more than 10 levels, or if there are more
files or lines than the newest page of docs/decisions with a line "Size: at most ..." allows.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

from grimp import ImportGraph, build_graph

PACKAGE = "fedvine"
ROOT = Path(__file__).resolve().parent.parent
SIZE = re.compile(r"^Size: at most (\d+) files and ([\d,]+) lines; tests ([\d,]+) lines", re.M)
MOST = 10       # levels


def rooms(graph: ImportGraph) -> ImportGraph:
    """Return a copy of the graph of files with one module for each room."""
    made = ImportGraph()
    room = {module: ".".join(module.split(".")[:2]) for module in graph.modules}
    for module in graph.modules:
        made.add_module(room[module])
        for imported in graph.find_modules_directly_imported_by(module):
            if room[imported] != room[module]:
                made.add_import(importer=room[module], imported=room[imported])
    return made


def circles(graph: ImportGraph) -> list[list[str]]:
    """Return the sets of modules that import each other in a circle, sorted."""
    found = {tuple(sorted({module} | graph.find_upstream_modules(module)
                          & graph.find_downstream_modules(module))) for module in graph.modules}
    return sorted(list(modules) for modules in found if len(modules) > 1)


def levels(graph: ImportGraph) -> dict[str, int]:
    """Return the level of each module of a graph without circles, from 1."""
    found: dict[str, int] = {}

    def level(module: str) -> int:
        if module not in found:
            below = graph.find_modules_directly_imported_by(module)
            found[module] = 1 + max(map(level, below), default=0)
        return found[module]

    for module in graph.modules:
        level(module)
    return found


def for_types_alone(graph: ImportGraph) -> list[tuple[str, str]]:
    """Return the imports under TYPE_CHECKING: all that are not in ``graph``, but for a room's own
    files in its ``__init__.py``."""
    every = build_graph(PACKAGE, cache_dir=None)
    return sorted((module, imported) for module in every.modules
                  for imported in every.find_modules_directly_imported_by(module)
                  if not graph.direct_import_exists(importer=module, imported=imported)
                  and not imported.startswith(f"{module}."))


def counted(folder: Path) -> dict[str, Counter[str]]:
    """Return files, lines and statements of the Python files in a folder, by room."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        place, text = path.relative_to(folder), path.read_text()
        room = place.parts[0] if len(place.parts) > 1 else "top"
        found.setdefault(room, Counter()).update(
            files=1, lines=text.count("\n"),
            statements=sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text))))
    return found


def allowed() -> tuple[int, int, int]:
    """Return the most files, lines, and lines of tests, by the newest decision that says so."""
    said = [fits for page in sorted((ROOT / "docs" / "decisions").glob("*.md"))
            for fits in SIZE.findall(page.read_text())]
    files, lines, tests = (int(number.replace(",", "")) for number in said[-1])
    return files, lines, tests


def too_large() -> bool:
    """Print sizes by room; return whether there is more than is allowed."""
    total = Counter[str]()
    print("\nroom         files   lines statements")
    for room, size in counted(ROOT / "src" / PACKAGE).items():
        print(f"{room:12} {size['files']:5} {size['lines']:7,} {size['statements']:10,}")
        total.update(size)
    tests = sum((size for size in counted(ROOT / "tests").values()), Counter())
    for name, size in (("all", total), ("tests", tests)):
        print(f"{name:12} {size['files']:5} {size['lines']:7,} {size['statements']:10,}")
    sizes, most = (total["files"], total["lines"], tests["lines"]), allowed()
    over = any(size > limit for size, limit in zip(sizes, most, strict=True))
    print(f"At most {most[0]} files, {most[1]:,} lines, {most[2]:,} lines of tests"
          + (": there is more, so let something go, or write a decision." if over else "."))
    return over


def main() -> int:
    """Print; the exit status."""
    files = build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    between = rooms(files)
    wrong = circles(between)
    height = {} if wrong else levels(between)
    for room in sorted(between.modules, key=lambda r: (-height.get(r, 0), r)):
        below = sorted(_short(r) for r in between.find_modules_directly_imported_by(room))
        print(f"{height.get(room, '-'):>2}  {_short(room):12} imports {', '.join(below) or '-'}")
    for kind, graph in (("rooms", between), ("files", files)):
        found = circles(graph)
        print(f"\nCircles between {kind}: {len(found) or 'none'}")
        for circle in found:
            print("   ", ", ".join(_short(module) for module in circle))
    print("\nImports for types alone:")
    for module, imported in for_types_alone(files):
        print(f"    {_short(module)} -> {_short(imported)}")
    highest = max(height.values(), default=0)
    print(f"\n{len(files.modules)} files, {len(between.modules)} rooms" + (
        f" on {highest} levels, of at most {MOST}." if height else "."))
    return int(bool(wrong or circles(files) or highest > MOST) | too_large())


def _short(module: str) -> str:
    return module.removeprefix(f"{PACKAGE}.")


if __name__ == "__main__":
    sys.exit(main())
