"""What is learned: a pretrained model and a data set, with questions that are held out by their text."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from digitloss.compare import FINE_TUNING, FineTuning, ProblemTask, Settings, run
from digitloss.errors import DatasetError, ModelError, TokenizerError
from fakes import one_digit_tokenizer, small_llama


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = one_digit_tokenizer()
    small_llama(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "sums.jsonl"
    rows = [{"question": f"{i} + {i}", "answer": str(2 * i)} for i in range(40)]
    path.write_text("\n".join(map(json.dumps, [*rows, *rows[:5]])))
    return str(path)


def task(model_folder, data_file, **options):
    return FineTuning(
        **{"model": model_folder, "data": data_file, "num_test": 8, "num_validation": 4, "max_new_tokens": 3, **options}
    )


def test_no_prompt_is_in_two_splits(model_folder, data_file):
    fine_tuning = task(model_folder, data_file)
    test, validation = fine_tuning.questions("test"), fine_tuning.questions("validation")
    held_out = {question.question for question in [*test, *validation]}
    assert len(held_out) == 12
    tokenizer = fine_tuning.tokenizer
    texts = [tokenizer.decode(row["input_ids"], skip_special_tokens=True) for row in fine_tuning.training_rows(0)]
    prompts = {text.partition("\n")[0].removeprefix("Question: ") for text in texts}
    assert prompts.isdisjoint(held_out)
    assert len(prompts) == 40 - 12
    assert len(test) + len(validation) + len(texts) == 45


def test_held_out_questions_do_not_depend_on_the_order_of_the_file(model_folder, data_file, tmp_path):
    lines = Path(data_file).read_text().split("\n")
    (tmp_path / "other.jsonl").write_text("\n".join(reversed(lines)))
    other = task(model_folder, str(tmp_path / "other.jsonl"))
    assert set(other.questions("test")) == set(task(model_folder, data_file).questions("test"))


def test_no_right_answer_is_cut(model_folder, data_file):
    """The longest are of two digits, one token each."""
    assert task(model_folder, data_file, max_new_tokens=None).answer_tokens == 2 + 8
    assert task(model_folder, data_file).answer_tokens == 3


def test_only_the_first_rows(model_folder, data_file):
    fine_tuning = task(model_folder, data_file, num_rows=20)
    assert len(fine_tuning.training_rows(0)) == 20 - 12


def test_too_few_rows(model_folder, data_file):
    with pytest.raises(DatasetError, match=r"12 different prompts in 12 rows leave none to train on, with 8 held out"):
        task(model_folder, data_file, num_rows=12).questions("test")


def test_what_cannot_be_loaded(model_folder, data_file, tmp_path):
    absent = str(tmp_path / "absent")
    with pytest.raises(TokenizerError, match="is neither a folder with a tokenizer nor a hub name"):
        _ = task(absent, data_file).tokenizer
    with pytest.raises(ModelError, match="is neither a folder with a causal language model in safetensors"):
        task(absent, data_file).new_model(0)


def test_weights_that_are_pickles_are_not_loaded(model_folder, data_file, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        task(str(tmp_path), data_file).new_model(0)


def test_a_tokenizer_without_an_end_of_text(model_folder, data_file, tmp_path):
    tokenizer = one_digit_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(TokenizerError, match="has no end-of-text token"):
        _ = task(model_folder, data_file, tokenizer_name=str(tmp_path)).tokenizer


def test_fine_tuning_from_end_to_end(model_folder, data_file, tmp_path):
    settings = Settings(
        losses=("cross_entropy", "dist2", "emo:rows=frozen"),
        alphas=(0.1, 0.3),
        task=task(model_folder, data_file),
        **{**FINE_TUNING, "steps": 2},
    )
    results = run(settings, tmp_path)
    assert len(results["tuning"]) == 2
    assert len(results["runs"]) == 3
    for name, split in (("runs", "test"), ("tuning", "validation")):
        for entry in results[name]:
            assert len(entry["outputs"]) == len(results["questions"][split]) >= 4
    assert results["settings"]["task"]["data"] == data_file
    starts = {entry["curves"]["cross_entropy"][0] for entry in results["runs"]}
    assert len(starts) == 1


@pytest.mark.parametrize("changed", ["training rows", "model"])
def test_changed_data_or_weights_are_not_mixed(model_folder, data_file, tmp_path, changed):
    folder, data = shutil.copytree(model_folder, tmp_path / "model"), shutil.copy(data_file, tmp_path / "data.jsonl")
    settings = Settings(losses=("cross_entropy",), task=task(str(folder), str(data)), **{**FINE_TUNING, "steps": 1})
    run(settings, tmp_path / "out")
    if changed == "model":
        small_llama(len(one_digit_tokenizer()), seed=1).save_pretrained(folder)
    else:
        held_out = {
            question.question for split in ("test", "validation") for question in settings.task.questions(split)
        }
        rows = [json.loads(line) for line in Path(data).read_text().split("\n")]
        changed_rows = [row if row["question"] in held_out else {**row, "answer": "7"} for row in rows]
        Path(data).write_text("\n".join(map(json.dumps, changed_rows)))
    other = Settings(
        losses=("cross_entropy", "mixce"), task=task(str(folder), str(data)), **{**FINE_TUNING, "steps": 1}
    )
    with pytest.raises(DatasetError, match=f"holds results of other settings \\({changed} '"):
        run(other, tmp_path / "out")


def test_rows_longer_than_the_model_reads_are_named(model_folder, data_file, tmp_path):
    settings = Settings(
        losses=("cross_entropy",), task=task(model_folder, data_file, max_new_tokens=120), **{**FINE_TUNING, "steps": 1}
    )
    with pytest.raises(DatasetError, match=r"example \d+ needs 14\d tokens, and the model reads 128"):
        run(settings, tmp_path)


def test_damaged_weights_are_named(model_folder, data_file, tmp_path):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(ModelError, match="is neither a folder with a causal language model"):
        task(str(folder), data_file).new_model(0)


def test_starts_of_a_problem_task_depend_on_the_seed_alone():
    small = ProblemTask(width=16, layers=1, heads=2, num_train=10)
    first, again, other = (small.new_model(seed).lm_head.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert small.training_rows(0) == small.training_rows(0)
    assert small.training_rows(0) != small.training_rows(1)


def test_rotary_positions_have_the_base_that_is_asked_for():
    """Under whatever name the installed transformers reads it: the lowest frequency is 1 / 100^(6/8)."""
    model = ProblemTask(width=16, layers=1, heads=2).new_model(0)
    assert model.model.rotary_emb.inv_freq.tolist() == pytest.approx([100 ** (-2 * k / 8) for k in range(4)])
