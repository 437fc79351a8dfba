"""One word per idea: a public name is defined in one module, apart from the names listed here.

Public names are the classes, functions and constants at the top level of a module, without an underscore.
Two packages are apart: `primer` writes the same mathematics a second time, under the field's names, and
`learn/exercises` is a learner's code. Type variables do not count.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "clearhead"
APART = ("primer", "learn/exercises")

# Meant: the same thing in every place, which the place tells apart.
CONVENTIONAL = {
    "routes",  # the routes of one screen of the studio, in each file of serve/routes
    # The parts of a family's file, and its variants'.
    "FAMILY", "spec", "weights", "class_weights", "DEFAULTS", "HEAD",
    # A command of the terminal has the name of what it calls.
    "architecture", "certify", "check_mask", "embed", "families", "generate", "merge", "plan", "predict",
    "train", "tune",
    "Prompt",  # a tuning, and a text to continue: users write ch.tune(bundle, Prompt(length=20))
    "main",  # of the program, and of the processes it starts
}  # fmt: skip


def test_a_public_name_is_defined_in_one_module_or_listed_here() -> None:
    twice = {name: sorted(modules) for name, modules in definitions().items() if len(modules) > 1}
    new = {name: modules for name, modules in twice.items() if name not in CONVENTIONAL}
    assert new == {}, "name each for what it is"
    assert sorted(CONVENTIONAL - twice.keys()) == [], "defined once by now: take it out of the list"


def definitions() -> dict[str, set[str]]:
    """Every public name, and the modules that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if not module.startswith(APART):
            for node in ast.parse(path.read_text("utf-8")).body:
                for name in names(node):
                    if not name.startswith("_"):
                        found[name].add(module)
    return found


def names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign) and not is_type_variable(node.value):
        for target in node.targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Name):
                    yield each.id


def is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"
