"""The committed page of `digitloss bench` shows the medians of the committed seconds and bytes."""

import json
import re
import statistics
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "bench"


@pytest.fixture(scope="module")
def results():
    return json.loads((FOLDER / "results.json").read_text())


@pytest.fixture(scope="module")
def settings(results):
    return results["settings"]


@pytest.fixture(scope="module")
def tables():
    """Of each section of the page, the cells of its table by case."""
    found = {}
    for section in (FOLDER / "report.md").read_text().split("\n## ")[1:]:
        rows = [re.findall(r"[^|]+", line) for line in section.splitlines() if line.startswith("| ")]
        found[section.partition("\n")[0].lower()] = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    return found


def test_the_page_has_every_setting_and_case(settings, tables):
    assert len(settings) == len(tables) == 11
    for found in settings:
        assert set(found["seconds"]) <= set(tables[found["title"].lower()])


def test_times_are_medians_of_ratios_of_a_round(settings, tables):
    compared = 0
    for found in settings:
        seconds = found["seconds"]
        for case, values in seconds.items():
            shown = tables[found["title"].lower()][case]
            assert shown[0] == f"{statistics.median(values):.3g}"
            for cell, over in ((shown[1], "cross_entropy"), (shown[3], "objective:cross_entropy")):
                if over in seconds:
                    assert cell == f"{statistics.median(a / b for a, b in zip(values, seconds[over], strict=True)):.3f}"
                    compared += 1
    assert compared > 60


def test_memory_is_in_multiples_of_the_logits_or_of_cross_entropy(settings, tables):
    for found in settings:
        setting, width = found["setting"], {"float32": 4, "bfloat16": 2}[found["setting"]["dtype"]]
        tokens, columns = setting["batch_size"] * setting["length"], setting["vocab_size"]
        for case, figures in found["memory"].items():
            if setting["path"] == "logits":
                expected = f"{figures['growth'] / (width * tokens * columns):.2f}"
            elif "cross_entropy" in found["memory"]:
                gradients = width * setting["hidden_size"] * (tokens + columns)
                growth = found["memory"]["cross_entropy"]["growth"]
                expected = f"{(figures['growth'] - gradients) / (growth - gradients):.2f}"
            else:
                expected = "-"
            assert tables[found["title"].lower()][case][4] == expected


def test_settings_without_plain_cross_entropy_are_drawn_too(results, tmp_path):
    pytest.importorskip("matplotlib")
    from digitloss.report.bench import draw_bench

    draw_bench(results, tmp_path / "bench.svg")
    assert (tmp_path / "bench.svg").read_text().count("<!-- seconds, median -->") == 1
