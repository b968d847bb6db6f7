"""Tables and pictures from result files."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from digitloss.report.pictures import draw_comparison
from digitloss.report.tables import comparison_page, comparison_table


def figure(mean, half, by_seed):
    return {"mean": mean, "interval": None if half is None else [mean - half, mean + half], "by_seed": by_seed}


def entry(loss, difference=None, **figures):
    return {
        "loss": loss,
        "alpha": None if loss.startswith("cross_entropy") else 0.3,
        "num_unparsed": 2,
        "num_answers": 80,
        "exact_match": figure(0.625, 0.05, [0.6, 0.65]),
        "mean_absolute_error": figure(1.2345, 0.5, [1.0, 1.469]),
        "median_absolute_error": figure(0.0, 0.0, [0.0, 0.0]),
        "digit_token_entropy": figure(0.4567, 0.1, [0.4, 0.5134]),
        "difference": difference,
        **figures,
    }


DIFFERENCE = {
    "by_seed": {
        "exact_match": figure(0.031, 0.02, [0.03, 0.032]),
        "mean_absolute_error": figure(-0.25, 0.5, [-0.2, -0.3]),
        "median_absolute_error": figure(0.0, 0.0, [0.0, 0.0]),
    },
    "by_question": {
        "exact_match": {**figure(0.031, 0.05, []), "num_questions": 40},
        "absolute_error": {**figure(-0.2, 0.1, []), "num_questions": 38},
    },
}
NO_ERROR = {"mean": None, "interval": None, "by_seed": [None, None]}


def one_run(loss, seed):
    return {
        "loss": loss,
        "seed": seed,
        "alpha": 0.3,
        "seconds_per_step": 0.5,
        "exact_match_interval": [0.4703, 0.7578],
        "exact_match_by_kind": {"rate": [10, 20], "sum": [15 + seed, 20]},
        "accuracy_by_place": {"1": [20, 30], "0": [35, 40], "-1": [18, 24], "-2": [1, 2]},
        "curves": {"step": [10, 20], "digit_token_entropy": [2.0, 0.5]},
    }


def make_results(seeds=(3, 4), losses=("cross_entropy", "digit_entropy", "o|wn:alpha=2")):
    summary = [entry(loss, None if loss == "cross_entropy" else DIFFERENCE) for loss in losses]
    if len(losses) > 2:
        summary[2] |= {"mean_absolute_error": NO_ERROR, "median_absolute_error": NO_ERROR}
    if len(seeds) == 1:
        for one in summary:
            one["exact_match"] = {**one["exact_match"], "interval": None, "by_seed": [0.625]}
    return {
        "settings": {
            "losses": list(losses),
            "seeds": list(seeds),
            "steps": 20,
            "batch_size": 8,
            "task_kind": "problems",
            "task": {"width": 16, "layers": 1, "num_train": 100},
        },
        "versions": {"digitloss": "0.1.0", "torch": "2.13.0"},
        "questions": {"test": [{}] * 40, "validation": [{}] * 30},
        "tuning": [
            {**one_run("digit_entropy", 9), "alpha": alpha, "exact_match": share}
            for alpha, share in ((0.1, 0.5), (0.3, 0.6))
        ],
        "runs": [one_run(loss, seed) for seed in seeds for loss in losses],
        "summary": summary,
    }


def table_text(results):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_table(results))
    return console.export_text()


def test_the_terminals_table_holds_the_figures():
    lines = table_text(make_results()).splitlines()
    (baseline,) = [line for line in lines if line.strip().startswith("cross_entropy")]
    assert baseline.split() == ["cross_entropy", "-", "62.5%", "57.5-67.5", "-", "1.23", "0", "2"]
    (other,) = [line for line in lines if line.strip().startswith("digit_entropy")]
    assert other.split() == ["digit_entropy", "0.3", "62.5%", "57.5-67.5", "+3.1", "±2.0", "1.23", "0", "2"]


def test_with_one_seed_intervals_are_over_the_questions():
    text = " ".join(table_text(make_results(seeds=(3,))).split())
    assert "47.0-75.8" in text
    assert "+3.1 ±5.0" in text
    assert "One seed (3): the intervals are over 40 questions and say nothing of other seeds." in text


def rows_of(page, heading):
    section = page.partition(f"## {heading}")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("` "): [cell.strip() for cell in row[1:]] for row in (r[2:-2].split(" | ") for r in rows)}


def test_the_page_holds_the_figures():
    page = comparison_page(make_results(), "digitloss compare --out x")
    figures = rows_of(page, "Figures")
    assert figures["digit_entropy"] == [
        *("0.3", "62.5%", "57.5 to 67.5", "1.23", "0.734 to 1.73", "0", "2 of 80", "0.457")
    ]
    assert figures["o\\|wn:alpha=2"][3:6] == ["-", "-", "-"]
    differences = rows_of(page, "Difference to `cross_entropy`")
    assert differences["digit_entropy"] == [
        "**+3.1 (+1.1 to +5.1)**",
        "+3.1 (\N{MINUS SIGN}1.9 to +8.1)",
        "\N{MINUS SIGN}0.25 (\N{MINUS SIGN}0.75 to +0.25)",
        "\N{MINUS SIGN}0.2 (\N{MINUS SIGN}0.3 to \N{MINUS SIGN}0.1)",
    ]
    assert "cross_entropy" not in differences
    assert rows_of(page, "Choice of alpha") == {"digit_entropy": ["50.0%", "[60.0%]"]}
    # rate 10 of 20 twice; sum 18 and 19 of 20
    assert rows_of(page, "Exact match by kind of question")["cross_entropy"] == ["50%", "92%"]
    assert "    digitloss compare --out x\n" in page
    assert "8 runs of 20 steps, 0.02 hours of training" in page
    assert '"batch_size": 8' in page


def test_the_page_of_one_loss_and_one_seed_has_no_differences():
    page = comparison_page(make_results(seeds=(3,), losses=("cross_entropy",)) | {"tuning": []}, "digitloss compare")
    assert "Difference" not in page.partition("## Figures")[2]
    assert "Choice of alpha" not in page


def test_the_page_of_a_fine_tuning_names_model_and_data():
    results = make_results()
    results["settings"] |= {"task_kind": "fine-tuning", "task": {"model": "my-model", "data": "sums.jsonl"}}
    assert "`my-model` is fine-tuned on `sums.jsonl`, with each of 3 losses and 2 seeds" in comparison_page(results, "")


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("seeds", [(3,), (3, 4)])
def test_the_picture_is_drawn(tmp_path, ending, seeds):
    path = tmp_path / f"comparison.{ending}"
    draw_comparison(make_results(seeds), path)
    content = path.read_bytes()
    if ending == "png":
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(content[16:20]) == 1870
    else:
        assert content.lstrip().startswith(b"<?xml")


def test_the_picture_of_one_loss(tmp_path):
    draw_comparison(make_results(losses=("cross_entropy",)), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000


def test_results_survive_a_round_trip_through_json():
    assert comparison_page(json.loads(json.dumps(make_results())), "c") == comparison_page(make_results(), "c")


@pytest.mark.parametrize(("absent", "extra"), [("matplotlib", "report"), ("transformers", "train"), ("scipy", "train")])
def test_a_missing_package_is_named_before_anything_is_trained(tmp_path, absent, extra):
    code = (
        f"import sys; sys.modules['{absent}'] = None\n"
        "from digitloss.cli import main\n"
        f"sys.exit(main(['compare', '--out', {str(tmp_path / 'x')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'digitloss[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()
