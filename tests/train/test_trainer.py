"""NumericTrainer: the same parameters however a step is split, metrics in the log, proof that the term was called."""

import logging

import pytest
import torch
from transformers import Trainer, TrainerCallback

import digitloss as dl
from digitloss.errors import TermNotCalledError
from digitloss.train import NumericTrainer
from fakes import encode, small_llama
from training import TEXTS, arguments, collate, lora, parameters, relative_difference, train


@pytest.mark.parametrize("wrap", [None, lora])
@pytest.mark.parametrize("normalize", ["tokens", "digits"])
@pytest.mark.parametrize("loss", dl.losses.names())
def test_accumulation_changes_nothing(tmp_path, vocab, rows, loss, normalize, wrap):
    objective = dl.Objective(vocab, loss=loss, normalize=normalize)
    options = {"wrap": wrap}
    full, expected = train(tmp_path, vocab, rows, objective, batch_size=8, accumulation=1, **options)
    assert expected.norm() > 0
    for batch_size, accumulation in [(4, 2), (2, 4), (1, 8)]:
        split, got = train(
            tmp_path, vocab, rows, objective, batch_size=batch_size, accumulation=accumulation, **options
        )
        assert relative_difference(got, expected) < 1e-5
        for name in ("loss", "cross_entropy", "numeric_loss", "digit_density"):
            assert split.state.log_history[0][name] == pytest.approx(full.state.log_history[0][name], rel=1e-5)


def test_one_step_is_the_gradient_of_the_objective(tmp_path, vocab, rows):
    """Against the objective itself, called by hand on the whole batch."""
    objective = dl.Objective(vocab, alpha=0.7)
    model = small_llama(len(vocab) + 3)
    batch = collate(rows)
    labels = batch.pop("labels")
    objective(model(**batch).logits, labels).backward()
    expected = torch.cat([-0.5 * p.grad.flatten() for p in model.parameters()])
    _, got = train(tmp_path, vocab, rows, objective, batch_size=8, accumulation=1)
    assert relative_difference(got, expected) < 1e-5


def test_alpha_zero_trains_as_the_plain_trainer(tmp_path, vocab, rows):
    rows = [{**row, "labels": torch.cat([torch.tensor([-100]), row["labels"][1:]])} for row in rows]
    plain, expected = train(tmp_path, vocab, rows, None, batch_size=2, accumulation=4, trainer=Trainer)
    ours, got = train(tmp_path, vocab, rows, dl.Objective(vocab, alpha=0.0), batch_size=2, accumulation=4)
    assert relative_difference(got, expected) < 1e-6
    assert ours.state.log_history[0]["loss"] == pytest.approx(plain.state.log_history[0]["loss"], rel=1e-6)


@pytest.mark.parametrize("normalize", ["tokens", "digits"])
@pytest.mark.parametrize("wrap", [None, lora])
def test_evaluation_does_not_depend_on_the_batch_size(tmp_path, vocab, rows, normalize, wrap):
    objective = dl.Objective(vocab, normalize=normalize)
    model = small_llama(len(vocab) + 3)
    model = (wrap(model) if wrap else model).eval()
    batch = collate(rows)
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits
        expected = objective(logits, labels)
        terms = objective.terms(logits, labels)
    for batch_size in (1, 3, 8):
        args = arguments(tmp_path, per_device_eval_batch_size=batch_size)
        trainer = NumericTrainer(model=model, args=args, objective=objective, eval_dataset=rows, data_collator=collate)
        metrics = trainer.evaluate()
        assert metrics["eval_loss"] == pytest.approx(expected.item(), rel=1e-5)
        num_targets = (labels[:, 1:] != -100).sum().item()
        assert metrics["eval_cross_entropy"] == pytest.approx(terms.cross_entropy.sum().item() / num_targets, rel=1e-5)
        assert metrics["eval_digit_density"] == pytest.approx(terms.num_digits.sum().item() / num_targets)
        assert trainer.evaluate(metric_key_prefix="test")["test_loss"] == metrics["eval_loss"]


def test_metrics_by_hand(tmp_path, vocab, rows):
    """Entropy, accuracy and density from the ten digit columns of the logits, digit by digit."""
    model = small_llama(len(vocab) + 3).eval()
    trainer = NumericTrainer(
        model=model,
        args=arguments(tmp_path, per_device_eval_batch_size=3),
        objective=dl.Objective(vocab, loss="number_token"),
        eval_dataset=rows,
        data_collator=collate,
    )
    metrics = trainer.evaluate()
    columns = [vocab.tokens.index(str(d)) for d in range(10)]
    entropies, hits, distances, num_targets = [], [], [], 0
    for row in rows:
        with torch.no_grad():
            logits = model(input_ids=row["input_ids"][None]).logits[0]
        for t, label in enumerate(row["labels"].tolist()[1:]):
            num_targets += label != -100
            if label in columns:
                p = logits[t, columns].double().softmax(0)
                target = columns.index(label)
                entropies.append(-(p * p.log()).sum().item())
                hits.append(p.argmax().item() == target)
                distances.append(sum(p[d].item() * abs(d - target) for d in range(10)))
    assert metrics["eval_digit_token_entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)
    assert metrics["eval_digit_accuracy"] == pytest.approx(sum(hits) / len(hits))
    assert metrics["eval_numeric_loss"] == pytest.approx(sum(distances) / num_targets, rel=1e-5)
    assert metrics["eval_digit_density"] == pytest.approx(len(entropies) / num_targets)


def test_the_log_has_the_metrics_of_training_and_evaluation(tmp_path, vocab, rows):
    model = small_llama(len(vocab) + 3)
    args = arguments(tmp_path, max_steps=4, logging_steps=2, eval_strategy="steps", eval_steps=2)
    trainer = NumericTrainer(
        model=model,
        args=args,
        objective=dl.Objective(vocab),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collate,
    )
    trainer.train()
    names = ["cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy", "digit_density"]
    training = [log for log in trainer.state.log_history if "loss" in log]
    evaluation = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert len(training) == len(evaluation) == 2
    assert all(name in log for log in training for name in names)
    assert all(f"eval_{name}" in log for log in evaluation for name in names)
    for log in training:
        assert log["loss"] == pytest.approx(log["cross_entropy"] + 0.1 * log["numeric_loss"], rel=1e-4)


def test_no_digits_leave_the_digit_metrics_out(tmp_path, vocab):
    labels = encode(vocab, "ab_cb")[0]
    rows = [{"input_ids": labels.clamp(min=0), "labels": labels}]
    trainer, _ = train(tmp_path, vocab, rows, dl.Objective(vocab), batch_size=1, accumulation=1)
    log = trainer.state.log_history[0]
    assert log["digit_density"] == log["numeric_loss"] == 0
    assert "digit_accuracy" not in log


def test_no_targets_at_all(tmp_path, vocab):
    labels = encode(vocab, "____")[0]
    rows = [{"input_ids": labels.clamp(min=0), "labels": labels}]
    trainer, change = train(tmp_path, vocab, rows, dl.Objective(vocab), batch_size=1, accumulation=1)
    assert change.norm() == 0
    assert "cross_entropy" not in trainer.state.log_history[0]


def test_packed_samples_keep_their_numbers_apart(tmp_path, vocab):
    labels = encode(vocab, "1234.5")
    batch = {"input_ids": labels, "labels": labels, "position_ids": torch.tensor([[0, 1, 0, 1, 2, 3]])}
    objective = dl.Objective(vocab)
    model = small_llama(len(vocab) + 3)
    trainer = NumericTrainer(model=model, args=arguments(tmp_path), objective=objective, train_dataset=[])
    loss, outputs = trainer.compute_loss(model, dict(batch), return_outputs=True)
    expected = objective(outputs.logits, labels, position_ids=batch["position_ids"])
    assert loss == expected
    assert loss != objective(outputs.logits, labels)


def test_the_first_step_logs_the_effective_weight(tmp_path, vocab, rows, caplog):
    with caplog.at_level(logging.INFO, logger="digitloss"):
        train(tmp_path, vocab, rows, dl.Objective(vocab, alpha=0.5), batch_size=4, accumulation=2, max_steps=3)
    (message,) = [record.message for record in caplog.records if record.name == "digitloss"]
    num_targets = sum((row["labels"][1:] != -100).sum().item() for row in rows)
    num_digits = sum(sum(c.isdigit() for c in text[1:]) for text in TEXTS)
    assert f"alpha 0.5, {num_digits / num_targets:.3f} digits a target token" in message
    assert f"weighs {0.5 * num_digits / num_targets:.4g} beside" in message


class Bypassing(NumericTrainer):
    """Computes the loss without the objective, as some subclass may."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_bypassed_term_raises_in_the_first_step(tmp_path, vocab, rows, accumulation):
    with pytest.raises(TermNotCalledError, match="first training step ran without the numeric term of NumericTrainer"):
        train(tmp_path, vocab, rows, dl.Objective(vocab), batch_size=2, accumulation=accumulation, trainer=Bypassing)


def test_other_losses_are_refused(tmp_path, vocab):
    model, objective = small_llama(len(vocab)), dl.Objective(vocab)
    with pytest.raises(ValueError, match="either objective or compute_loss_func, not both"):
        NumericTrainer(model=model, args=arguments(tmp_path), objective=objective, compute_loss_func=print)
    with pytest.raises(ValueError, match="label_smoothing_factor has no effect"):
        NumericTrainer(model=model, args=arguments(tmp_path, label_smoothing_factor=0.1), objective=objective)


def test_bad_batches_are_named(tmp_path, vocab):
    model = small_llama(len(vocab))
    trainer = NumericTrainer(model=model, args=arguments(tmp_path), objective=dl.Objective(vocab))
    ids = torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match=r"the batch has no labels, only \['input_ids'\]"):
        trainer.compute_loss(model, {"input_ids": ids})


@pytest.mark.usefixtures("shapes_unchecked")
def test_an_objective_is_no_name(tmp_path, vocab):
    with pytest.raises(TypeError, match="expected an Objective, got 'digit_entropy'"):
        NumericTrainer(model=small_llama(len(vocab)), args=arguments(tmp_path), objective="digit_entropy")


def test_shifted_labels_train_as_unshifted_ones(tmp_path, vocab, rows):
    def shift(row):
        return {**row, "shift_labels": torch.cat([row["labels"][1:], torch.tensor([-100])])}

    def collate_shifted(batch):
        found = collate(batch)
        width = found["labels"].shape[1]
        pads = [torch.nn.functional.pad(r["shift_labels"], (0, width - len(r["labels"])), value=-100) for r in batch]
        return {**{name: found[name] for name in ("input_ids", "attention_mask")}, "shift_labels": torch.stack(pads)}

    objective = dl.Objective(vocab, normalize="digits")
    _, expected = train(tmp_path, vocab, rows, objective, batch_size=4, accumulation=2)
    model = small_llama(len(vocab) + 3)
    before = parameters(model)
    args = arguments(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    trainer = NumericTrainer(
        model=model,
        args=args,
        objective=objective,
        train_dataset=[shift(row) for row in rows],
        data_collator=collate_shifted,
    )
    trainer.train()
    assert relative_difference(parameters(model) - before, expected) < 1e-5


@pytest.mark.parametrize("keep", [("shift_labels",), ("labels", "shift_labels")])
def test_shifted_labels_evaluate_as_unshifted_ones(tmp_path, vocab, rows, keep):
    def collate_shifted(batch):
        found = collate(batch)
        found["shift_labels"] = torch.nn.functional.pad(found["labels"][:, 1:], (0, 1), value=-100)
        return {name: value for name, value in found.items() if name != "labels" or name in keep}

    metrics = []
    for collator in (collate, collate_shifted):
        trainer = NumericTrainer(
            model=small_llama(len(vocab) + 3),
            args=arguments(tmp_path, per_device_eval_batch_size=3),
            objective=dl.Objective(vocab),
            eval_dataset=rows,
            data_collator=collator,
        )
        metrics.append(trainer.evaluate())
    for name in ("loss", "cross_entropy", "numeric_loss", "digit_accuracy", "digit_density"):
        assert metrics[1][f"eval_{name}"] == pytest.approx(metrics[0][f"eval_{name}"], rel=1e-5)


def test_metrics_of_a_training_that_was_cut_off_do_not_leak_into_the_next(tmp_path, vocab, rows):
    found = []

    class Stop(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            found.append(trainer._train_sums.metrics())

        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = True

    args = arguments(tmp_path, max_steps=3, logging_steps=2, per_device_train_batch_size=8)
    trainer = NumericTrainer(
        model=small_llama(len(vocab) + 3),
        args=args,
        objective=dl.Objective(vocab),
        train_dataset=rows,
        data_collator=collate,
        callbacks=[Stop()],
    )
    trainer.train()
    assert trainer._train_sums.metrics()
    trainer.train()
    assert found == [{}, {}]


def test_a_model_without_logits_is_explained(tmp_path, vocab):
    class Fused(torch.nn.Module):
        def forward(self, input_ids):
            return {"logits": None}

    trainer = NumericTrainer(model=Fused(), args=arguments(tmp_path), objective=dl.Objective(vocab))
    with pytest.raises(ValueError, match=r"the model returned no logits.*use_liger_kernel"):
        trainer.compute_loss(Fused(), {"input_ids": torch.tensor([[1, 2]]), "labels": torch.tensor([[1, 2]])})


def test_an_evaluation_before_the_first_step_proves_and_hides_nothing(tmp_path, vocab, rows, caplog):
    class BypassingInTraining(NumericTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            if model.training:
                return model(**inputs).loss
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    options = {"eval_on_start": True, "eval_strategy": "steps", "per_device_train_batch_size": 8}
    for kind in (NumericTrainer, BypassingInTraining):
        trainer = kind(
            model=small_llama(len(vocab) + 3),
            args=arguments(tmp_path, **options),
            objective=dl.Objective(vocab),
            train_dataset=rows,
            eval_dataset=rows,
            data_collator=collate,
        )
        if kind is BypassingInTraining:
            with pytest.raises(TermNotCalledError):
                trainer.train()
        else:
            with caplog.at_level(logging.INFO, "digitloss"):
                trainer.train()
            assert len(caplog.messages) == 1
