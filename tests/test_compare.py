"""The comparison: the same start and batches for every loss, scores by hand, resuming."""

import json
from pathlib import Path

import pytest

from digitloss.compare import PRESETS, Answer, Settings, engine, run, score, trial, wilson_interval
from digitloss.errors import DatasetError

TINY = {"num_train": 200, "num_test": 18, "steps": 6, "batch_size": 8, "width": 16, "layers": 1, "heads": 2}


def tiny(*losses, **options):
    return Settings(**{"losses": losses or ("cross_entropy", "digit_entropy"), **TINY, **options})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    calls = []
    return out, run(tiny(), out, lambda what, share: calls.append((what, share))), calls


def test_results_are_in_the_file(finished):
    out, results, _ = finished
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(results))
    assert [entry["loss"] for entry in results["runs"]] == ["cross_entropy", "digit_entropy"]
    assert {"digitloss", "python", "torch", "transformers"} == set(results["versions"])
    for entry in results["runs"]:
        assert len(entry["answers"]) == entry["num_questions"] == 18
        assert entry["curves"]["step"] == [1, 2, 3, 4, 5, 6]
        assert len(entry["curves"]["digit_token_entropy"]) == 6
        assert set(entry["teacher_forced"]) == {
            "cross_entropy",
            "numeric_loss",
            "digit_token_entropy",
            "digit_accuracy",
        }


def test_every_loss_has_the_same_start_batches_and_questions(finished):
    _, results, _ = finished
    baseline, other = results["runs"]
    assert baseline["curves"]["cross_entropy"][0] == other["curves"]["cross_entropy"][0]
    assert baseline["curves"]["digit_token_entropy"][0] == other["curves"]["digit_token_entropy"][0]
    assert baseline["curves"]["cross_entropy"][-1] != other["curves"]["cross_entropy"][-1]
    assert [a["question"] for a in baseline["answers"]] == [a["question"] for a in other["answers"]]


def test_progress_ends_at_one(finished):
    _, _, calls = finished
    shares = [share for _, share in calls]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {what for what, _ in calls} == {"cross_entropy", "digit_entropy"}


def test_the_same_settings_give_the_same_figures(finished, tmp_path):
    _, results, _ = finished
    again = run(tiny(), tmp_path)
    for old, new in zip(results["runs"], again["runs"], strict=True):
        assert old["curves"] == new["curves"]
        assert old["answers"] == new["answers"]


def test_processes_change_nothing(finished, tmp_path):
    _, results, _ = finished
    calls = []
    together = run(tiny(), tmp_path, lambda what, share: calls.append(share), workers=2)
    assert calls == sorted(calls)
    assert calls[-1] == 1.0
    for old, new in zip(results["runs"], together["runs"], strict=True):
        assert old["curves"] == new["curves"]
        assert old["answers"] == new["answers"]


def test_workers_are_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run(tiny(), tmp_path, workers=0)


def test_an_interrupted_comparison_goes_on(finished, tmp_path, monkeypatch):
    _, results, _ = finished
    kept = {**results, "runs": results["runs"][1:]}
    (tmp_path / "results.json").write_text(json.dumps(kept))
    trained = []
    original = engine.run_trial
    monkeypatch.setattr(engine, "run_trial", lambda *args: trained.append(args[1]) or original(*args))
    completed = run(tiny(), tmp_path)
    assert trained == ["cross_entropy"]
    assert [entry["loss"] for entry in completed["runs"]] == ["cross_entropy", "digit_entropy"]
    assert completed["runs"][0]["answers"] == results["runs"][0]["answers"]


def test_another_loss_can_be_added_and_none_is_lost(finished, tmp_path):
    _, results, _ = finished
    (tmp_path / "results.json").write_text(json.dumps(results))
    completed = run(tiny("dist2", "cross_entropy"), tmp_path)
    assert [entry["loss"] for entry in completed["runs"]] == ["dist2", "cross_entropy", "digit_entropy"]
    assert completed["runs"][2] == json.loads(json.dumps(results["runs"][1]))


def test_results_of_other_settings_are_kept(finished, tmp_path):
    _, results, _ = finished
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))
    with pytest.raises(DatasetError, match=r"holds results of other settings \(steps 6 there, 7 now\)"):
        run(tiny(steps=7), tmp_path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(results))


def test_results_of_another_version_are_kept_apart(finished, tmp_path):
    _, results, _ = finished
    old = {**results, "versions": {**results["versions"], "torch": "2.6.0"}}
    (tmp_path / "results.json").write_text(json.dumps(old))
    with pytest.raises(DatasetError, match=r"holds results of other settings \(torch '2\.6\.0' there"):
        run(tiny(), tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"settings": 3}'])
def test_results_that_cannot_be_read(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(DatasetError, match=r"results\.json: not the results of a comparison"):
        run(tiny(), tmp_path)


def test_few_rows_are_repeated():
    rows = [{"input_ids": [1] * n, "labels": [1] * n} for n in range(1, 4)]
    plan = trial._plan(tiny(batch_size=5, steps=2), rows)
    assert len(plan) == 10
    assert set(plan) == {0, 1, 2}


def test_a_plan_takes_every_row_once_before_any_twice():
    rows = [{"input_ids": [1] * (n % 7 + 1), "labels": [1] * (n % 7 + 1)} for n in range(64)]
    plan = trial._plan(tiny(batch_size=8, steps=8), rows)
    assert sorted(plan) == list(range(64))
    assert plan != sorted(plan)


ANSWERS = [
    Answer("sum", "1 + 1.5", "2.5", "2.50"),  # equal by value
    Answer("sum", "100 + 5", "105", "5"),  # off by 100; the tens and hundreds were not written
    Answer("sum", "1 - 4", "-3", "3"),  # off by 6, the digit is right
    Answer("rate", "0.1 * 5", "0.5", "x1"),  # no number
    Answer("rate", "1 * 7", "7", " 8.25 "),  # off by 1.25
]


def test_scores_by_hand():
    scores = score(ANSWERS)
    assert scores["num_questions"] == 5
    assert scores["exact_match"] == 1 / 5
    assert scores["exact_match_by_kind"] == {"rate": [0, 2], "sum": [1, 3]}
    assert scores["num_unparsed"] == 1
    assert scores["mean_absolute_error"] == (0 + 100 + 6 + 1.25) / 4
    assert scores["median_absolute_error"] == (1.25 + 6) / 2
    # units: 2 of 2.5, 5 of 105, 3 are right, 0 of 0.5 and 7 are not; first decimal: 5 of 2.5 right, 5 of 0.5 not
    assert scores["accuracy_by_place"] == {"2": [0, 1], "1": [0, 1], "0": [3, 5], "-1": [1, 2]}


def test_no_number_at_all():
    scores = score([Answer("sum", "1", "1", ""), Answer("sum", "1", "1", "1e3"), Answer("sum", "1", "1", "--1")])
    assert scores["num_unparsed"] == 3
    assert scores["mean_absolute_error"] is None
    assert scores["median_absolute_error"] is None


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_as_published(right, total, low, high):
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson_interval(right, total) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(total - right, total) == pytest.approx((1 - high, 1 - low), abs=5e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": ()}, "losses must name at least one loss"),
        ({"losses": ("digit_entropi",)}, "unknown loss 'digit_entropi', did you mean 'digit_entropy'"),
        ({"losses": ("dist2", "dist2")}, "losses must differ"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
        ({"seed": -1}, "seed and weight_decay must be at least 0"),
        ({"width": 18, "heads": 4}, "width must be a multiple of twice the heads, got 18 and 4"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)


def test_the_quick_preset_compares_the_four_losses():
    assert PRESETS["quick"].losses == ("cross_entropy", "number_token", "dist2", "digit_entropy")


def test_results_are_written_whole(finished):
    out, _, _ = finished
    assert [path.name for path in Path(out).iterdir()] == ["results.json"]
