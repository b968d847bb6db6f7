"""The figures on the comparison page are those of the committed result files, worked out again from the raw outputs."""

import json
import math
import re
import statistics
from decimal import Decimal
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
T_975 = {4: 2.776445}  # Student's t, by degrees of freedom


def load(name):
    return json.loads((DOCS / "results" / name / "results.json").read_text())


def rows_of(page, heading):
    """Cells of the table below a heading, by the name in their first cell."""
    section = (DOCS / page).read_text().partition(f"{heading}\n")[2].partition("\n#")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): [cell.strip() for cell in cells[1:]] for cells in lines}


def number(text):
    """The last number of a short text; none where it has two points, as a version has."""
    found = re.findall(r"(?:(?<![0-9])-)?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)", text)
    return Decimal(found[-1]) if found and not re.search(r"\.[0-9]+\.[0-9]", text) else None


def outcomes(results, run):
    """For each question: whether it is right, and how far off it is (None where it is no number)."""
    for question, output in zip(results["questions"]["test"], run["outputs"], strict=True):
        gold, value = Decimal(question["gold"]), number(output.strip())
        yield value == gold, None if value is None else float(abs(value - gold))


def exact_match(results, run):
    return statistics.fmean(right for right, _ in outcomes(results, run))


def mean_error(results, run):
    return statistics.fmean(error for _, error in outcomes(results, run) if error is not None)


def by_seed(results, loss, figure):
    return [figure(results, run) for run in results["runs"] if run["loss"] == loss]


def interval(values):
    half = T_975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - half, statistics.fmean(values) + half


def test_the_quick_table():
    results, rows = load("quick"), rows_of("comparison.md", "### Small model, built-in problems, one seed")
    assert list(rows) == [entry["loss"] for entry in results["summary"]]
    for run in results["runs"]:
        share, (low, high) = exact_match(results, run), run["exact_match_interval"]
        errors = [error for _, error in outcomes(results, run) if error is not None]
        assert rows[run["loss"]] == [
            f"{share:.1%}",
            f"{100 * low:.1f} to {100 * high:.1f}",
            f"{statistics.fmean(errors):.3g}",
            f"{statistics.median(errors):.3g}",
            f"{run['teacher_forced']['digit_token_entropy']:.3f}",
        ]


@pytest.mark.parametrize("page", ["comparison.md", "results/full/report.md"])
def test_the_full_table(page):
    results = load("full")
    heading = "## Figures" if page.endswith("report.md") else "### Small model, built-in problems, five seeds"
    rows = rows_of(page, heading)
    assert list(rows) == [entry["loss"] for entry in results["summary"]]
    for loss, cells in rows.items():
        runs = [run for run in results["runs"] if run["loss"] == loss]
        assert [run["seed"] for run in runs] == [0, 1, 2, 3, 4]
        shares, errors = by_seed(results, loss, exact_match), by_seed(results, loss, mean_error)
        low, high = interval(shares)
        assert cells[0] == ("-" if runs[0]["alpha"] is None else f"{runs[0]['alpha']:g}")
        assert cells[1] == f"{statistics.fmean(shares):.1%}"
        assert cells[2] == f"{100 * low:.1f} to {100 * high:.1f}"
        assert cells[3] == f"{statistics.fmean(errors):.3g}"


def test_the_differences_of_the_full_comparison():
    results = load("full")
    rows = rows_of("results/full/report.md", "## Difference to `cross_entropy`")
    baseline = by_seed(results, "cross_entropy", exact_match)
    for loss, cells in rows.items():
        differences = [a - b for a, b in zip(by_seed(results, loss, exact_match), baseline, strict=True)]
        numbers = [statistics.fmean(differences), *interval(differences)]
        shown = [
            float(text.replace("\N{MINUS SIGN}", "-")) for text in re.findall(r"[+\N{MINUS SIGN}][0-9.]+", cells[0])
        ]
        assert shown == pytest.approx([100 * number for number in numbers], abs=0.0501)
        assert cells[0].startswith("**") == (numbers[1] > 0 or numbers[2] < 0)


def test_the_same_loss_twice_differs_by_chance_alone():
    """The A/A comparison of the full preset: its intervals contain 0."""
    results = load("full")
    for figure in (exact_match, mean_error):
        plain, again = (by_seed(results, loss, figure) for loss in ("cross_entropy", "cross_entropy_again"))
        assert plain != again
        low, high = interval([a - b for a, b in zip(again, plain, strict=True)])
        assert low <= 0 <= high


def test_alphas_were_chosen_on_questions_that_the_result_does_not_use():
    results = load("full")
    asked = {split: {q["question"] for q in questions} for split, questions in results["questions"].items()}
    assert asked["test"].isdisjoint(asked["validation"])
    assert {run["seed"] for run in results["tuning"]}.isdisjoint(results["settings"]["seeds"])
    for loss in ("number_token", "dist2", "digit_entropy"):
        candidates = [run for run in results["tuning"] if run["loss"] == loss]
        best = max(run["exact_match"] for run in candidates)
        chosen = {run["alpha"] for run in results["runs"] if run["loss"] == loss}
        assert chosen == {min(run["alpha"] for run in candidates if run["exact_match"] == best)}


@pytest.mark.parametrize("loss", ["cross_entropy", "digit_entropy"])
def test_the_finetune_table(loss):
    results = json.loads((DOCS / "results" / "finetune" / f"{loss}.json").read_text())
    assert results["held_out_digits"] == {"seen": 9214, "written": 9214}
    after = results["losses"][loss]["after"]
    names = ["cross_entropy", "numeric_loss", "digit_accuracy", "digit_token_entropy"]
    assert rows_of("comparison.md", "### SmolLM2-135M on GSM8K, one seed")[loss] == [f"{after[n]:.4f}" for n in names]
