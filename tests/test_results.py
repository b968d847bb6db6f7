"""The tables of the comparison page are those of the committed result files."""

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def table_row(name):
    page = (DOCS / "comparison.md").read_text()
    return [re.findall(r"[^|]+", line)[1:] for line in page.splitlines() if line.startswith(f"| `{name}` |")]


@pytest.mark.parametrize("loss", ["cross_entropy", "number_token", "dist2", "digit_entropy"])
def test_the_quick_table(loss):
    results = json.loads((DOCS / "results" / "quick" / "results.json").read_text())
    (run,) = [run for run in results["runs"] if run["loss"] == loss]
    low, high = run["exact_match_interval"]
    right = sum(float(answer["output"]) == float(answer["gold"]) for answer in run["answers"] if is_number(answer))
    assert run["exact_match"] == right / len(run["answers"])
    expected = [
        f"{run['exact_match']:.1%}",
        f"{100 * low:.1f}-{100 * high:.1f}",
        f"{run['mean_absolute_error']:.3g}",
        f"{run['median_absolute_error']:.3g}",
        f"{run['teacher_forced']['digit_token_entropy']:.3f}",
    ]
    assert [cell.strip() for cell in table_row(loss)[0]] == expected


def is_number(answer):
    return re.fullmatch(r"-?[0-9]*\.?[0-9]+", answer["output"].strip())


@pytest.mark.parametrize("loss", ["cross_entropy", "digit_entropy"])
def test_the_finetune_table(loss):
    results = json.loads((DOCS / "results" / "finetune" / f"{loss}.json").read_text())
    assert results["held_out_digits"] == {"seen": 9214, "written": 9214}
    after = results["losses"][loss]["after"]
    names = ["cross_entropy", "numeric_loss", "digit_accuracy", "digit_token_entropy"]
    assert [cell.strip() for cell in table_row(loss)[1]] == [f"{after[name]:.4f}" for name in names]
