"""The public surface."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import digitloss

ROOT = Path(__file__).parents[1]
HEAVY = [
    "transformers",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "lm_eval",
    "matplotlib",
    "plotly",
    "sklearn",
    "rich",
    "scipy",
    "pyarrow",
]


def test_all_is_the_public_surface():
    submodules = {path.stem for path in Path(digitloss.__file__).parent.iterdir()}
    checker = {"jaxtyping"}  # put there by the check of shapes under pytest
    public = {name for name in vars(digitloss) if not name.startswith("_")} - checker
    on_purpose = set(digitloss.__all__) - {"__version__"}
    assert public - (submodules - on_purpose) == on_purpose
    assert all(hasattr(digitloss, name) for name in digitloss.__all__)
    assert list(digitloss.__all__) == sorted(digitloss.__all__)


@pytest.mark.parametrize("module", ["digitloss.losses", "digitloss.numbers", "digitloss.train", "digitloss.data"])
def test_all_of_each_part_resolves(module):
    part = __import__(module, fromlist=["__all__"])
    assert all(hasattr(part, name) for name in part.__all__)


def test_import_loads_nothing_heavy():
    code = f"import sys, digitloss; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_names_the_command():
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import digitloss\n"
        "try: digitloss.train.NumericTrainer\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "MissingExtraError NumericTrainer needs packages" in done.stdout
    assert "pip install 'digitloss[train]'" in done.stdout


def test_unknown_attribute_of_train():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        digitloss.train.nothing  # noqa: B018


def test_versions_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert digitloss.__version__ == version
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == version
