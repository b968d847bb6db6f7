"""digitloss bench: what is measured, what is left out, and the ratios."""

import json
from dataclasses import replace

import pytest
import torch

from digitloss import bench, cli, errors
from digitloss.bench import PRESETS, Setting, cases, measure
from digitloss.bench.summary import summarize
from digitloss.report import bench as report

TINY = Setting(batch_size=2, length=8, vocab_size=40, hidden_size=4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the command on two settings."""
    folder = tmp_path_factory.mktemp("bench")
    shape = ["--shape", "2", "8", "40", "--hidden-size", "4", "--rounds", "3", "--threads", "1"]
    for path, names in (
        (
            "logits",
            ["cross_entropy", "objective:digit_entropy", "objective:cross_entropy", "autograd:emo", "number_finding"],
        ),
        ("hidden", ["cross_entropy", "objective:cross_entropy", "objective:emo", "linear_cross_entropy", "liger"]),
    ):
        assert cli.main(["bench", "--path", path, *shape, "--cases", *names, "--out", str(folder)]) == 0
    return folder, json.loads((folder / "results.json").read_text())


def test_every_case_is_measured(finished):
    _, results = finished
    logits, hidden = results["settings"]
    assert list(logits["summary"]) == [
        "cross_entropy",
        "objective:digit_entropy",
        "objective:cross_entropy",
        "autograd:emo",
        "number_finding",
    ]
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in logits["seconds"].values())
    assert logits["summary"]["cross_entropy"]["time"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert logits["summary"]["number_finding"]["memory"] is None
    assert logits["memory"]["cross_entropy"]["gradients"] == 2 * 8 * 40 * 4
    assert hidden["memory"]["objective:emo"]["gradients"] == (2 * 8 * 4 + 40 * 4) * 4
    assert hidden["memory"]["objective:emo"]["inputs"] == hidden["memory"]["objective:emo"]["gradients"]
    assert {"digitloss", "python", "torch"} <= set(results["versions"])


def test_what_cannot_run_here_is_left_out_and_named(finished):
    folder, results = finished
    assert results["settings"][1]["left_out"] == {"liger": "liger_kernel: it needs a GPU, and the device is cpu"}
    assert "Left out: liger_kernel: it needs a GPU, and the device is cpu." in (folder / "report.md").read_text()


def test_gradient_errors_are_those_of_float32(finished):
    _, results = finished
    errors_of = results["settings"][1]["gradient_errors"]
    assert set(errors_of) == {"objective:cross_entropy", "objective:emo"}
    for found in errors_of.values():
        assert 0 < max(found["ours"].values()) < 1e-5


def test_the_page_and_the_picture(finished):
    folder, results = finished
    page = (folder / "report.md").read_text()
    assert "## Logits [2, 8, 40], float32, cpu" in page
    assert page.count("| objective:cross_entropy |") == 2
    assert (folder / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert [table.row_count for table in report.bench_tables(results)] == [5, 4]


def test_a_setting_that_is_there_is_not_measured_again(finished, monkeypatch):
    folder, results = finished
    setting = Setting(
        **{**results["settings"][0]["setting"], "cases": tuple(results["settings"][0]["setting"]["cases"])}
    )
    monkeypatch.setattr("digitloss.bench.engine.measure_seconds", lambda *_: pytest.fail("measured again"))
    assert bench.run([setting], folder, rounds=3, num_threads=1) == results


def test_results_of_another_measurement_are_not_mixed(finished):
    folder, _ = finished
    with pytest.raises(errors.DatasetError, match=r"measured with rounds 3, this is 4: choose another folder"):
        bench.run([TINY], folder, rounds=4, num_threads=1)
    with pytest.raises(errors.DatasetError, match=r"measured with machine .*'threads': 1"):
        bench.run([TINY], folder, rounds=3, num_threads=2)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"machine": 1'])
def test_results_that_cannot_be_read(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(errors.DatasetError, match=r"expected the results of digitloss bench"):
        bench.run([TINY], tmp_path)
    assert (tmp_path / "results.json").read_text() == content


def test_ratios_by_hand():
    """Ratios of a round, 1/2, 3/4, 9/10, then their median and quartiles."""
    found = {
        "setting": {"path": "logits"},
        "seconds": {
            "cross_entropy": [2.0, 4.0, 10.0],
            "objective:cross_entropy": [0.5, 1.0, 2.0],
            "x": [1.0, 3.0, 9.0],
        },
        "memory": {"x": {"inputs": 100, "gradients": 100, "growth": 150}},
    }
    summary = summarize(found)
    assert summary["x"]["time"] == pytest.approx({"median": 0.75, "low": 0.625, "high": 0.825})
    assert summary["x"]["time_of_term"] == pytest.approx({"median": 3.0, "low": 2.5, "high": 3.75})
    assert summary["x"]["memory"] == 1.5
    assert summary["x"]["seconds"] == 3.0
    hidden = {
        **found,
        "setting": {"path": "hidden"},
        "memory": {
            "cross_entropy": {"inputs": 50, "gradients": 50, "growth": 550},
            "x": {"inputs": 50, "gradients": 50, "growth": 75},
        },
    }
    assert summarize(hidden)["x"]["memory"] == 25 / 500


def test_memory_of_a_process_is_what_is_taken():
    size = 64 * 2**20

    def take():
        torch.ones(size // 4)

    assert measure._peak_of_process(take) == pytest.approx(size, rel=0.1)
    assert measure._peak_of_process(lambda: None) < size / 20


def test_memory_of_plain_cross_entropy_is_three_times_the_logits():
    """log_softmax, the gradient of its input, and what leads there."""
    setting = replace(TINY, length=512, vocab_size=8000)
    memory = measure.measure_memory("cross_entropy", setting, 1)
    assert memory["growth"] / memory["gradients"] == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("case", ["cross_entropy", "objective:digit_entropy", "autograd:digit_entropy"])
def test_cases_of_logits_agree(case):
    """A baseline that computes something else would make a ratio of nothing."""
    inputs = cases.make_inputs(TINY)
    value = cases.make_call(case, TINY)(inputs)
    expected = cases.make_call("objective:cross_entropy", TINY)(inputs)
    if "digit_entropy" in case:
        assert value > expected
    else:
        torch.testing.assert_close(value, expected)


def test_cases_of_hidden_states_agree():
    setting = replace(TINY, path="hidden")
    inputs = cases.make_inputs(setting)
    expected = cases.make_call("cross_entropy", setting)(inputs)
    names = ["objective:cross_entropy"]
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        names.append("linear_cross_entropy")
    for name in names:
        torch.testing.assert_close(cases.make_call(name, setting)(inputs), expected)


def test_ntloss_is_added_to_cross_entropy():
    pytest.importorskip("ntloss", reason="the package ntloss is not installed")
    inputs = cases.make_inputs(TINY)
    assert cases.make_call("ntloss", TINY)(inputs) > cases.make_call("cross_entropy", TINY)(inputs)


def test_digits_and_digit_tokens_are_as_asked():
    setting = replace(TINY, length=2000, vocab_size=2000, longest_token=3, digits=0.3)
    assert len(cases.make_vocab(setting).tables().token_ids) == 1110
    labels = cases.make_inputs(setting).labels
    assert float((labels < 1110).float().mean()) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "fulll"], "unknown --preset 'fulll'"),
        (["--preset", "full", "--digits", "0.5"], "--preset brings its own settings: leave out digits"),
        (["--cases", "objective:digit_entrop"], "unknown case 'objective:digit_entrop'"),
        (["--cases", "objective"], "unknown case 'objective'"),
        (["--cases", "linear_cross_entropy"], "the case linear_cross_entropy is for the path hidden, not for logits"),
        (["--path", "hiden"], "unknown path 'hiden'"),
        (["--dtype", "int8"], "unknown dtype 'int8'"),
        (["--digits", "1.5"], "digits must lie between 0 and 1, got 1.5"),
        (["--shape", "0", "8", "40"], "batch_size must be at least 1, got 0"),
        (["--shape", "1", "8", "10"], "vocab_size must be more than the 10 digit tokens, got 10"),
        (["--rounds", "0"], "rounds and threads must be at least 1, got 0 and 2"),
    ],
)
def test_bad_arguments(shapes_unchecked, tmp_path, capsys, arguments, message):
    assert cli.main(["bench", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("device", ["cuda", "tpu"])
def test_a_device_that_is_not_there(tmp_path, capsys, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert cli.main(["bench", "--device", device, "--out", str(tmp_path / "out")]) == 1
    assert f"digitloss bench: {device}: " in capsys.readouterr().err


def test_presets_hold_what_can_be_called():
    for setting in (setting for settings in PRESETS.values() for setting in settings):
        small = replace(setting, batch_size=1, length=4, vocab_size=1200, hidden_size=4)
        for case in setting.cases:
            if case != "ntloss":
                cases.make_call(case, small)(cases.make_inputs(small))
