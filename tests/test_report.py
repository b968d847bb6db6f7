"""Tables and pictures from result files."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from digitloss.report import comparison_table, draw_comparison


def one_run(loss, **figures):
    run = {
        "loss": loss,
        "alpha": 0.1,
        "alpha_applies": loss != "cross_entropy",
        "seed": 3,
        "seconds_per_step": 0.0213,
        "num_questions": 40,
        "exact_match": 0.625,
        "exact_match_interval": [0.4703, 0.7578],
        "num_unparsed": 2,
        "mean_absolute_error": 1.2345,
        "median_absolute_error": 0.0,
        "accuracy_by_place": {"1": [20, 30], "0": [35, 40], "-1": [18, 24], "-2": [1, 2]},
        "teacher_forced": {"digit_token_entropy": 0.4567, "digit_accuracy": 0.81},
        "curves": {"step": [10, 20], "digit_token_entropy": [2.0, 0.5]},
    }
    return {**run, **figures}


RESULTS = {
    "settings": {"steps": 20},
    "runs": [
        one_run("cross_entropy"),
        one_run("digit_entropy", mean_absolute_error=None, median_absolute_error=None),
        one_run("own_loss"),
    ],
}


def table_text():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_table(RESULTS))
    return console.export_text()


def test_the_table_holds_the_figures():
    lines = table_text().splitlines()
    (baseline,) = [line for line in lines if "cross_entropy" in line]
    assert baseline.split() == ["cross_entropy", "-", "62.5%", "47.0-75.8", "1.23", "0", "2", "0.457"]
    (other,) = [line for line in lines if "digit_entropy" in line]
    assert other.split() == ["digit_entropy", "0.1", "62.5%", "47.0-75.8", "-", "-", "2", "0.457"]


def test_the_table_says_what_the_intervals_are_over():
    text = " ".join(table_text().split())
    assert "One training seed (3): the intervals are over 40 questions" in text


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_drawn(tmp_path, ending):
    path = tmp_path / f"comparison.{ending}"
    draw_comparison(RESULTS, path)
    content = path.read_bytes()
    if ending == "png":
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
        assert (width, height) == (1680, 1008)
    else:
        assert content.lstrip().startswith(b"<?xml")


def test_a_missing_matplotlib_names_the_command():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from pathlib import Path\n"
        "from digitloss.report import draw_comparison\n"
        "try: draw_comparison({'runs': []}, Path('x.png'))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'digitloss[report]'" in done.stdout
