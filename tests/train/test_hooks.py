"""The reduced adapters: compute_loss_func and NumericLossCallback."""

import logging

import pytest
import torch
from transformers import Trainer

import digitloss as dl
from digitloss.errors import TermNotCalledError
from digitloss.train import NumericLossCallback, compute_loss_func
from fakes import letters_vocab, small_llama
from training import arguments, collate, lora, parameters, relative_difference, train


@pytest.fixture
def rows(rows):
    """Rows whose first label is masked: older releases of transformers count it though it is no target."""
    return [{**row, "labels": torch.cat([torch.tensor([-100]), row["labels"][1:]])} for row in rows]


def train_with(tmp_path, rows, *, batch_size, accumulation, wrap=None, **extra):
    model = small_llama(len(letters_vocab()) + 3)
    model = wrap(model) if wrap else model
    before = parameters(model)
    args = arguments(tmp_path, per_device_train_batch_size=batch_size, gradient_accumulation_steps=accumulation)
    trainer = Trainer(model=model, args=args, train_dataset=rows, data_collator=collate, **extra)
    trainer.train()
    return trainer, parameters(model) - before


def adapters(objective):
    return {
        "compute_loss_func": lambda: {"compute_loss_func": compute_loss_func(objective)},
        "callback": lambda: {"callbacks": [NumericLossCallback(objective)]},
    }


@pytest.mark.parametrize("wrap", [None, lora])
@pytest.mark.parametrize("adapter", ["compute_loss_func", "callback"])
def test_equal_to_the_trainer_however_the_step_is_split(tmp_path, vocab, rows, adapter, wrap):
    objective = dl.Objective(vocab, alpha=0.4)
    _, expected = train(tmp_path, vocab, rows, objective, batch_size=8, accumulation=1, wrap=wrap)
    for batch_size, accumulation in [(8, 1), (2, 4)]:
        make = adapters(objective)[adapter]
        _, got = train_with(tmp_path, rows, batch_size=batch_size, accumulation=accumulation, wrap=wrap, **make())
        assert relative_difference(got, expected) < 1e-5


@pytest.mark.parametrize("adapter", ["compute_loss_func", "callback"])
def test_evaluation(tmp_path, vocab, rows, adapter):
    objective = dl.Objective(vocab)
    trainer, _ = train_with(tmp_path, rows, batch_size=8, accumulation=1, **adapters(objective)[adapter]())
    batch = collate(rows)
    labels = batch.pop("labels")
    with torch.no_grad():
        expected = objective(trainer.model.eval()(**batch).logits, labels)
    assert trainer.evaluate(rows)["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("adapter", ["compute_loss_func", "callback"])
def test_the_first_call_logs_the_effective_weight(tmp_path, vocab, rows, adapter, caplog):
    with caplog.at_level(logging.INFO, logger="digitloss"):
        train_with(tmp_path, rows, batch_size=2, accumulation=4, **adapters(dl.Objective(vocab))[adapter]())
    assert len([record for record in caplog.records if record.name == "digitloss"]) == 1


@pytest.mark.parametrize("make", [compute_loss_func, NumericLossCallback])
def test_what_a_hook_cannot_do_is_refused(vocab, make):
    with pytest.raises(ValueError, match=r"cannot use normalize='digits'.*Use NumericTrainer"):
        make(dl.Objective(vocab, normalize="digits"))


def test_a_loss_function_that_is_never_called_raises(tmp_path, vocab, rows):
    objective = dl.Objective(vocab)
    with pytest.raises(TermNotCalledError, match="numeric term of NumericLossCallback"):
        train_with(
            tmp_path,
            rows,
            batch_size=8,
            accumulation=1,
            callbacks=[NumericLossCallback(objective)],
            compute_loss_func=lambda outputs, labels, num_items_in_batch: outputs.logits.square().mean(),
        )


def test_a_model_without_a_loss_function_is_refused(tmp_path, vocab, shapes_unchecked):
    callback = NumericLossCallback(dl.Objective(vocab))
    with pytest.raises(TypeError, match="Linear has no loss_function to set"):
        callback.on_train_begin(arguments(tmp_path), None, None, model=torch.nn.Linear(1, 1))


def test_shifted_labels_are_refused(vocab, shapes_unchecked):
    model = small_llama(len(vocab))
    NumericLossCallback(dl.Objective(vocab)).on_train_begin(None, None, None, model=model)
    ids = torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match="shift_labels"):
        model.loss_function(logits=torch.zeros(1, 2, len(vocab)), labels=ids, vocab_size=1, shift_labels=ids)
