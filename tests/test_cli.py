"""The command line: help, exit status, errors on stderr, and the commands themselves."""

import json
import re
import subprocess
import sys

import pytest

from digitloss import compare
from digitloss.cli import main
from fakes import one_digit_tokenizer, three_digit_tokenizer


@pytest.fixture
def tokenizer_folder(tmp_path):
    three_digit_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return str(tmp_path / "tokenizer")


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["inspect", "--help"]])
def test_help(capsys, arguments):
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "usage: digitloss" in text
    assert len(arguments) == 1 or re.search(r"Examples?:\n  digitloss", text)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("digitloss 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["compair"], "invalid choice: 'compair'"),
        (["compare"], "the following arguments are required: --out"),
        (["compare", "--out", "x", "--steps", "many"], "invalid int value: 'many'"),
        (["compare", "--out", "x", "--steps", "0"], "digitloss compare: steps must be positive, got 0"),
        (["compare", "--out", "x", "--preset", "quik"], "unknown preset 'quik', did you mean 'quick'"),
        (["compare", "--out", "x", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["compare", "--out", "x", "--seeds", "a-b"], "argument --seeds: expected seeds such as 0,3 or 0-4, got 'a-b'"),
        (["compare", "--out", "x", "--alphas", "0.1,b"], "argument --alphas: expected numbers such as 0.1,0.3"),
        (["compare", "--out", "x", "--model", "m"], "--model and --data belong together"),
        (["compare", "--out", "x", "--rows", "5"], "the options --rows need --model and --data"),
        (["compare", "--out", "x", "--model", "m", "--data", "d", "--preset", "full"], "--preset is for the built-in"),
        (["compare", "--out", "x", "--losses", "dist"], "unknown loss 'dist', did you mean 'dist2'"),
    ],
)
def test_bad_arguments(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_inspect(capsys, tokenizer_folder):
    assert main(["inspect", "--tokenizer", tokenizer_folder, "a 1234.56"]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    cells = {row[1]: row[2:] for row in rows if len(row) == 5}
    assert cells["'123'"] == ["1 2 3", "3 2 1", "4 3 2"]
    assert cells["'4'"] == ["4", "0", "1"]
    assert cells["'56'"] == ["5 6", "-1 -2", "0.98 0.961"]
    assert cells["'a'"] == ["", "", ""]


def test_inspect_options(capsys, tokenizer_folder):
    arguments = ["inspect", "--tokenizer", tokenizer_folder, "--decimal-point", ",", "--thousands-separator", "none"]
    assert main([*arguments, "--place", "released", "7,5"]) == 0
    output = capsys.readouterr().out
    assert "2 digits in 2 of 3 tokens; the tokenizer has 1110 digit tokens in 3 families" in " ".join(output.split())
    assert "0.961" in output


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--place", "realeased"], 2, "unknown place 'realeased', did you mean 'released'"),
        (["--decimal-point", ","], 2, "decimal_point and thousands_separator must differ"),
        (["--decimal-point", "dot"], 2, "decimal_point must be None or one character"),
    ],
)
def test_bad_inspect_options(capsys, tokenizer_folder, options, status, message):
    assert main(["inspect", "--tokenizer", tokenizer_folder, *options, "1"]) == status
    assert message in capsys.readouterr().err


def test_inspect_without_a_tokenizer(capsys, tmp_path):
    absent = str(tmp_path / "absent")
    assert main(["inspect", "--tokenizer", absent, "1"]) == 1
    assert f"{absent!r} is neither a folder with a tokenizer nor a hub name" in capsys.readouterr().err


def test_inspect_a_tokenizer_without_digits(capsys, tmp_path):
    tokenizer = one_digit_tokenizer()
    description = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = {token: i for token, i in vocabulary.items() if not token.isdigit()}
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    assert main(["inspect", "--tokenizer", str(tmp_path), "1"]) == 1
    assert "no digit tokens: looked for the ASCII digits" in capsys.readouterr().err


def test_compare(capsys, tmp_path, monkeypatch):
    small = compare.Settings(
        steps=40, batch_size=4, task=compare.ProblemTask(num_train=100, num_test=9, width=16, layers=1, heads=2)
    )
    monkeypatch.setattr(compare, "PRESETS", {"quick": small})
    out = tmp_path / "results"
    command = ["compare", "--steps", "3", "--losses", "dist2", "mine=number_token:alpha=1", "--workers", "1"]
    assert main([*command, "--seeds", "5", "--num-test", "10", "--out", str(out)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "One seed (5): the intervals are over 10 questions" in output
    for name in ("results.json", "report.md", "comparison.png"):
        assert name in output
        assert (out / name).stat().st_size > 1_000
    results = json.loads((out / "results.json").read_text())
    assert [(run["loss"], run["alpha"]) for run in results["runs"]] == [("dist2", 0.1), ("mine", 1.0)]
    assert results["settings"]["steps"] == 3
    command = ["compare", "--steps", "4", "--losses", "dist2", "--seeds", "5", "--num-test", "10", "--out", str(out)]
    assert main(command) == 1
    assert "holds results of other settings (steps 3 there, 4 now)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ([], {"seeds": (0,), "steps": 2_000}),
        (["--seeds", "0-2,7"], {"seeds": (0, 1, 2, 7)}),
        (["--alphas", "0.1,1"], {"alphas": (0.1, 1.0)}),
        (["--preset", "full", "--num-test", "7"], {"seeds": (0, 1, 2, 3, 4), "task.num_test": 7, "task.width": 128}),
        (
            ["--model", "m", "--data", "d.csv", "--rows", "200", "--tokenizer", "t", "--batch-size", "4"],
            {
                "losses": ("cross_entropy", "digit_entropy"),
                "steps": 60,
                "batch_size": 4,
                "task.model": "m",
                "task.data": "d.csv",
                "task.num_rows": 200,
                "task.tokenizer_name": "t",
            },
        ),
    ],
)
def test_compare_options(monkeypatch, tmp_path, options, settings):
    class Stopped(Exception):
        pass

    def stop(found, out, progress, workers):
        for name, value in settings.items():
            owner = found.task if name.startswith("task.") else found
            assert getattr(owner, name.removeprefix("task.")) == value
        raise Stopped

    monkeypatch.setattr(compare, "run", stop)
    with pytest.raises(Stopped):
        main(["compare", *options, "--out", str(tmp_path)])


def test_an_interruption_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "run", stop)
    assert main(["compare", "--out", str(tmp_path)]) == 1
    assert "interrupted; the same command goes on where it stopped" in capsys.readouterr().err


def test_help_is_quick_to_import():
    code = (
        "import sys; from digitloss.cli import main; main(['--help'])\n"
        "print([name for name in ('transformers', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
