"""Imports go one way."""

import ast
from pathlib import Path

import pytest

import digitloss

FOLDER = Path(digitloss.__file__).parent

ALLOWED = {
    "cli": {"hub", "bench", "compare", "report", "analysis", "evals", "train", "data", "losses", "numbers"},
    "bench": {"losses", "numbers"},
    "compare": {"hub", "analysis", "evals", "train", "data", "losses", "numbers"},
    "report": set(),
    "evals": {"data"},
    "train": {"losses", "data"},
    "data": set(),
    "hub": set(),
    "losses": {"numbers"},
    "numbers": set(),
    "errors": set(),
    "_shapes": set(),
}
FOR_ALL = {"errors", "_shapes"}


def imports_of(source):
    """Line and first part below `digitloss` of each import of the package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "a relative import"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "digitloss":
            parts = node.module.split(".")
            for name in [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]:
                yield node.lineno, name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "digitloss":
                    yield node.lineno, parts[1] if len(parts) > 1 else "digitloss itself"


def forbidden(layer, source):
    allowed = ALLOWED[layer] | FOR_ALL | {layer}
    return [(line, name) for line, name in imports_of(source) if name not in allowed]


MODULES = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_go_one_way(path):
    layer = path.parts[0].removesuffix(".py")
    assert layer in ALLOWED, f"{path}: say in tests/test_layers.py what {layer} may import"
    wrong = forbidden(layer, (FOLDER / path).read_text())
    assert not wrong, "\n".join(f"{path}:{line}: {layer} must not import {name}" for line, name in wrong)


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("losses", "from digitloss.train import NumericTrainer"),
        ("numbers", "import digitloss.losses.dist2"),
        ("train", "def f():\n    from digitloss import cli"),
        ("report", "from digitloss.losses import Objective"),
        ("data", "from .. import errors"),
        ("losses", "import digitloss"),
    ],
)
def test_a_wrong_import_is_found(layer, source):
    assert forbidden(layer, source)
    assert not forbidden(layer, "from digitloss.errors import DatasetError\nimport torch")
