"""The comparison: the same start and batches for every loss, resuming, processes, and what chance alone does."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from digitloss.compare import ProblemTask, Settings, engine, run, trial
from digitloss.errors import DatasetError

TASK = {"num_train": 200, "num_test": 18, "num_validation": 9, "width": 16, "layers": 1, "heads": 2}


def tiny(*losses, task=None, **options):
    return Settings(
        **{
            "losses": losses or ("cross_entropy", "digit_entropy"),
            "steps": 6,
            "batch_size": 8,
            "task": ProblemTask(**{**TASK, **(task or {})}),
            **options,
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison")
    calls = []
    return out, run(tiny(), out, lambda what, share: calls.append((what, share))), calls


def as_json(value):
    return json.loads(json.dumps(value))


def without_times(results):
    """The results less what a clock decides."""
    runs = {
        name: [{key: value for key, value in entry.items() if key != "seconds_per_step"} for entry in results[name]]
        for name in ("tuning", "runs")
    }
    return as_json({**results, **runs})


def losses_of(results):
    return [(entry["loss"], entry["seed"]) for entry in results["runs"]]


def test_results_are_in_the_file(finished):
    out, results, _ = finished
    assert {path.name for path in Path(out).iterdir()} - {"results.lock"} == {"results.json"}
    assert json.loads((out / "results.json").read_text()) == as_json(results)
    assert losses_of(results) == [("cross_entropy", 0), ("digit_entropy", 0)]
    assert {"digitloss", "python", "torch", "transformers", "device"} == set(results["versions"])
    assert [entry["loss"] for entry in results["summary"]] == ["cross_entropy", "digit_entropy"]
    for entry in results["runs"]:
        assert len(entry["outputs"]) == entry["num_questions"] == len(results["questions"]["test"]) == 18
        assert entry["curves"]["step"] == [1, 2, 3, 4, 5, 6]
        assert len(entry["curves"]["digit_token_entropy"]) == 6
        assert set(entry["teacher_forced"]) == {
            "cross_entropy",
            "numeric_loss",
            "digit_token_entropy",
            "digit_accuracy",
        }


def test_every_loss_has_the_same_start_and_batches(finished):
    _, results, _ = finished
    baseline, other = (entry["curves"] for entry in results["runs"])
    assert baseline["cross_entropy"][0] == other["cross_entropy"][0]
    assert baseline["digit_token_entropy"][0] == other["digit_token_entropy"][0]
    assert baseline["cross_entropy"][-1] != other["cross_entropy"][-1]


def test_progress_ends_at_one(finished):
    _, _, calls = finished
    shares = [share for _, share in calls]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {what for what, _ in calls} == {"cross_entropy, seed 0", "digit_entropy, seed 0"}


def test_the_same_settings_give_the_same_figures(finished, tmp_path):
    _, results, _ = finished
    assert without_times(run(tiny(), tmp_path)) == without_times(results)


def test_processes_change_nothing(finished, tmp_path):
    _, results, _ = finished
    shares = []
    together = run(tiny(), tmp_path, lambda what, share: shares.append(share), workers=2)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert without_times(together) == without_times(results)


def test_workers_are_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run(tiny(), tmp_path, workers=0)


def test_an_interrupted_comparison_goes_on(finished, tmp_path, monkeypatch):
    _, results, _ = finished
    kept = {**results, "runs": results["runs"][1:], "summary": []}
    (tmp_path / "results.json").write_text(json.dumps(kept))
    trained = []
    original = engine.run_trial
    monkeypatch.setattr(engine, "run_trial", lambda *args: trained.append(args[1].variant.label) or original(*args))
    completed = run(tiny(), tmp_path)
    assert trained == ["cross_entropy"]
    assert without_times(completed) == without_times(results)


KILLED = """
import sys
from pathlib import Path
from digitloss.compare import ProblemTask, Settings, run
settings = Settings(losses=("cross_entropy", "dist2"), seeds=(0, 1), alphas=(0.1, 0.3), steps=6, batch_size=8,
    task=ProblemTask(num_train=200, num_test=18, num_validation=9, width=16, layers=1, heads=2))
run(settings, Path(sys.argv[1]))
"""


def test_after_sigkill_the_results_are_the_same(tmp_path):
    """Killed again and again, as soon as one more run is in the file."""
    settings = tiny("cross_entropy", "dist2", seeds=(0, 1), alphas=(0.1, 0.3))
    path = tmp_path / "killed" / "results.json"
    for num_runs in (1, 3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, path.parent], start_new_session=True)
        while process.poll() is None and num_runs_in(path) < num_runs:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert num_runs <= num_runs_in(path) < 6
    resumed = run(settings, path.parent)
    assert without_times(resumed) == without_times(run(settings, tmp_path / "whole"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, how):
    """Killed, or interrupted, with two workers in the middle of long runs."""
    code = KILLED.replace("steps=6", "steps=100_000").replace("Path(sys.argv[1])", "Path(sys.argv[1]), workers=2")
    code = code.replace("run(settings", "if __name__ == '__main__': run(settings")
    heeds_interrupts = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # else as the parent
    code = f"{heeds_interrupts}\n{code}"
    script = tmp_path / "script.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, script, tmp_path / "out"], stderr=subprocess.DEVNULL)
    while len(children := children_of(process.pid)) < 3 and process.poll() is None:  # two workers, a tracker
        time.sleep(0.1)
    time.sleep(3)
    process.send_signal(how)
    process.wait(timeout=60)
    end = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def children_of(pid):
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split() if path.exists() else []


def num_runs_in(path):
    results = json.loads(path.read_text()) if path.exists() else {"tuning": [], "runs": []}
    return len(results["tuning"]) + len(results["runs"])


def test_losses_and_seeds_can_be_added_and_no_run_is_lost(finished, tmp_path):
    _, results, _ = finished
    (tmp_path / "results.json").write_text(json.dumps(results))
    grown = run(tiny("dist2", "cross_entropy", seeds=(1,)), tmp_path)
    assert grown["settings"]["losses"] == ["cross_entropy", "digit_entropy", "dist2"]
    assert losses_of(grown) == [(loss, seed) for seed in (0, 1) for loss in grown["settings"]["losses"]]
    assert as_json(grown["runs"][1]) == as_json(results["runs"][1])


def test_alpha_is_chosen_on_other_questions_and_another_seed(tmp_path):
    results = run(tiny("cross_entropy", "dist2", "b=dist2:alpha=5", alphas=(0.1, 0.3)), tmp_path)
    assert [(entry["loss"], entry["alpha"]) for entry in results["tuning"]] == [("dist2", 0.1), ("dist2", 0.3)]
    assert {entry["seed"] for entry in results["tuning"]} == {999_999}
    assert all(len(entry["outputs"]) == 9 for entry in results["tuning"])
    chosen = engine.chosen_alpha(results["tuning"], "dist2")
    assert [entry["alpha"] for entry in results["runs"]] == [None, chosen, 5.0]
    asked = {name: {q["question"] for q in questions} for name, questions in results["questions"].items()}
    assert asked["validation"].isdisjoint(asked["test"])


def test_the_best_alpha_is_chosen_and_the_lower_of_equals():
    def candidate(loss, alpha, exact_match):
        return {"loss": loss, "alpha": alpha, "exact_match": exact_match}

    tuning = [candidate("a", 0.3, 0.5), candidate("a", 0.1, 0.5), candidate("a", 1.0, 0.4), candidate("b", 1.0, 0.9)]
    assert engine.chosen_alpha(tuning, "a") == 0.1
    assert engine.chosen_alpha(tuning, "b") == 1.0


def test_the_same_loss_twice_differs_by_nothing_in_one_stream_and_by_chance_in_two(tmp_path):
    """The A/A comparison: its interval covers 0."""
    results = run(
        tiny(
            "cross_entropy",
            "same=cross_entropy",
            "again=cross_entropy:stream=1",
            seeds=(0, 1, 2, 3),
            steps=40,
            learning_rate=0.02,
        ),
        tmp_path,
    )
    _, same, again = results["summary"]
    for figure in ("exact_match", "mean_absolute_error"):
        assert same["difference"]["by_seed"][figure]["by_seed"] == [0, 0, 0, 0]
        low, high = again["difference"]["by_seed"][figure]["interval"]
        assert low <= 0 <= high
    assert any(again["difference"]["by_seed"]["mean_absolute_error"]["by_seed"])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_loses_no_other(tmp_path, monkeypatch, workers):
    """A weight of the size of float32's limit overflows and the trainer's answers are not numbers: made to raise."""
    monkeypatch.setattr(engine, "_run_in_worker", fail_on_dist2)
    if workers == 1:
        monkeypatch.setattr(engine, "run_trial", lambda settings, one, report: fail_on_dist2(settings, one, 0))
    with pytest.raises(RuntimeError, match="dist2 failed"):
        run(tiny("cross_entropy", "dist2", "mixce"), tmp_path, workers=workers)
    done = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert [entry["loss"] for entry in done] == ["cross_entropy"] if workers == 1 else ["cross_entropy", "mixce"]


def fail_on_dist2(settings, one, index):
    if one.variant.label == "dist2":
        raise RuntimeError("dist2 failed")
    return {"loss": one.variant.label, "seed": one.seed, "alpha": None, "outputs": []}


def test_results_of_other_settings_are_kept(finished, tmp_path):
    _, results, _ = finished
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))
    with pytest.raises(DatasetError, match=r"holds results of other settings \(steps 6 there, 7 now\)"):
        run(tiny(steps=7), tmp_path)
    with pytest.raises(DatasetError, match=r"holds results of other settings \(questions; task .* there, .* now\)"):
        run(tiny(task={"num_test": 9}), tmp_path)
    assert json.loads(path.read_text()) == as_json(results)


def test_results_of_another_version_are_kept_apart(finished, tmp_path):
    _, results, _ = finished
    old = {**results, "versions": {**results["versions"], "torch": "2.6.0"}}
    (tmp_path / "results.json").write_text(json.dumps(old))
    with pytest.raises(DatasetError, match=r"holds results of other settings \(torch '2\.6\.0' there"):
        run(tiny(), tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"settings": 3}',
        b"\xff",
        b'{"settings": {"losses": [], "seeds": []}, "versions": {}, "tuning": [], "runs": [{}]}',
        b'{"settings": {"losses": [], "seeds": []}, "versions": {}, "tuning": [], "runs": [3]}',
    ],
)
def test_results_that_cannot_be_read(tmp_path, content):
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(DatasetError, match=r"results\.json: not the results of a comparison"):
        run(tiny(), tmp_path)
    assert (tmp_path / "results.json").read_bytes() == content


def test_two_comparisons_do_not_write_to_one_folder(tmp_path):
    with FileLock(tmp_path / "results.lock"), pytest.raises(DatasetError, match="another comparison is writing"):
        run(tiny(), tmp_path)


def rows_of_lengths(lengths):
    return [{"input_ids": [1] * n, "labels": [1] * n} for n in lengths]


def test_few_rows_are_repeated():
    plan = trial._plan(dataclasses.replace(tiny(), batch_size=5, steps=2), rows_of_lengths(range(1, 4)), seed=0)
    assert len(plan) == 10
    assert set(plan) == {0, 1, 2}


def test_a_plan_takes_every_row_once_before_any_twice():
    plan = trial._plan(tiny(steps=8), rows_of_lengths(n % 7 + 1 for n in range(64)), seed=0)
    assert sorted(plan) == list(range(64))
    assert plan != sorted(plan)


def test_rows_that_fill_no_batch_are_left_out_by_chance_not_by_length():
    plan = trial._plan(tiny(steps=200), rows_of_lengths(range(1, 51)), seed=0)
    assert set(plan) == set(range(50))
