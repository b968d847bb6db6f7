"""The reduced adapters: compute_loss_func and NumericLossCallback."""

import logging

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from transformers import MixtralConfig, MixtralForCausalLM, T5Config, T5ForConditionalGeneration, Trainer

import digitloss as dl
from digitloss.errors import TermNotCalledError
from digitloss.train import NumericLossCallback, NumericTrainer, compute_loss_func
from fakes import encode, letters_vocab, small_llama
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


def test_shifted_labels_are_used(vocab, shapes_unchecked):
    model = small_llama(len(vocab))
    objective = dl.Objective(vocab)
    NumericLossCallback(objective).on_train_begin(None, None, None, model=model)
    labels = encode(vocab, "a12.5b")
    logits = torch.randn(1, 6, len(vocab), generator=torch.Generator().manual_seed(0))
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    for given in (labels, torch.zeros_like(labels), None):  # shift_labels win
        value = model.loss_function(logits=logits, labels=given, vocab_size=1, shift_labels=shifted)
        torch.testing.assert_close(value, objective(logits, labels))
    with pytest.raises(ValueError, match="expected labels or shift_labels, got neither"):
        model.loss_function(logits=logits, vocab_size=1)


def test_shifted_labels_train_as_unshifted_ones(tmp_path, vocab, rows):
    """As transformers passes them under sequence parallelism: labels and shift_labels through the model."""

    def collate_both(batch):
        found = collate(batch)
        return {**found, "shift_labels": torch.nn.functional.pad(found["labels"][:, 1:], (0, 1), value=-100)}

    changes = []
    for collator in (collate, collate_both):
        model = small_llama(len(vocab) + 3)
        before = parameters(model)
        trainer = Trainer(
            model=model,
            args=arguments(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=2),
            train_dataset=rows,
            data_collator=collator,
            callbacks=[NumericLossCallback(dl.Objective(vocab))],
        )
        trainer.train()
        changes.append(parameters(model) - before)
    assert relative_difference(changes[1], changes[0]) < 1e-5


@pytest.mark.parametrize("make", [compute_loss_func, NumericLossCallback])
@pytest.mark.usefixtures("shapes_unchecked")
def test_an_objective_is_no_name(make):
    with pytest.raises(
        TypeError, match=r"expected an Objective, got 'digit_entropy': make one with digitloss\.Objective"
    ):
        make("digit_entropy")


def small_t5(vocab):
    return T5ForConditionalGeneration(
        T5Config(vocab_size=len(vocab), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )


@pytest.mark.usefixtures("shapes_unchecked")
def test_encoder_decoder_models_are_refused(tmp_path, vocab):
    model, objective = small_t5(vocab), dl.Objective(vocab)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is an encoder-decoder model"):
        NumericTrainer(model=model, args=arguments(tmp_path), objective=objective)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is an encoder-decoder model"):
        NumericLossCallback(objective).on_train_begin(None, None, None, model=model)
    ids = torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match="the outputs are of an encoder-decoder model"):
        compute_loss_func(objective)(model(input_ids=ids, decoder_input_ids=ids), ids)


def small_mixtral(vocab):
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=2,
        output_router_logits=True,
    )
    return MixtralForCausalLM(config)


@pytest.mark.usefixtures("shapes_unchecked")
def test_the_auxiliary_loss_of_experts_is_refused_or_added(tmp_path, vocab, rows):
    model, objective = small_mixtral(vocab), dl.Objective(vocab)
    batch = collate(rows[:2])
    trainer = NumericTrainer(model=model, args=arguments(tmp_path), objective=objective)
    with pytest.raises(ValueError, match=r"auxiliary loss .* would leave out: set config.output_router_logits=False"):
        trainer.compute_loss(model, dict(batch))
    with pytest.raises(ValueError, match="auxiliary loss"):
        compute_loss_func(objective)(model(input_ids=batch["input_ids"]), batch["labels"])
    NumericLossCallback(objective).on_train_begin(None, None, None, model=model)
    outputs = model(**batch)
    expected = objective(outputs.logits, batch["labels"]) + model.router_aux_loss_coef * outputs.aux_loss
    torch.testing.assert_close(outputs.loss, expected)


@pytest.mark.usefixtures("shapes_unchecked")
def test_virtual_tokens_are_for_the_callback(tmp_path, vocab, rows):
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = get_peft_model(small_llama(len(vocab)), config)
    trainer = NumericTrainer(model=model, args=arguments(tmp_path), objective=dl.Objective(vocab))
    batch = collate(rows[:2])
    with pytest.raises(ValueError, match=r"virtual tokens in front .* by NumericLossCallback only"):
        trainer.compute_loss(model, dict(batch))
    objective = dl.Objective(vocab)
    NumericLossCallback(objective).on_train_begin(None, None, None, model=model)
    outputs = model(**batch)
    torch.testing.assert_close(outputs.loss, objective(outputs.logits[:, 3:], batch["labels"]))


def test_a_tuple_of_outputs_is_explained(vocab):
    logits, labels = torch.zeros(1, 2, len(vocab)), torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match="return_dict=True"):
        compute_loss_func(dl.Objective(vocab))((logits,), labels)


def test_a_callback_proves_each_training_anew(tmp_path, vocab, rows):
    """The second training bypasses the loss function; the calls of the first one prove nothing."""
    callback = NumericLossCallback(dl.Objective(vocab))
    train_with(tmp_path, rows, batch_size=8, accumulation=1, callbacks=[callback])
    with pytest.raises(TermNotCalledError):
        train_with(
            tmp_path,
            rows,
            batch_size=8,
            accumulation=1,
            callbacks=[callback],
            compute_loss_func=lambda outputs, labels, num_items_in_batch=None: outputs.logits.sum(),
        )


def test_a_head_given_to_the_objective_is_enough(vocab):
    model = small_llama(len(vocab))
    objective = dl.Objective(vocab, "emo", head=model.get_output_embeddings())
    labels = encode(vocab, "a12.5b")
    outputs = model(input_ids=labels)
    value = compute_loss_func(objective)(outputs, labels)
    assert value == objective(outputs.logits, labels)
    with pytest.raises(ValueError, match="compute_loss_func cannot read the head, which emo needs: give it to the obj"):
        compute_loss_func(dl.Objective(vocab, "emo"))


def test_there_is_no_line_on_the_weight_of_a_digit_where_there_is_no_term(vocab, caplog):
    labels = encode(vocab, "a12.5b")
    outputs = {"logits": torch.zeros(1, 6, len(vocab))}
    with caplog.at_level(logging.INFO, "digitloss"):
        compute_loss_func(dl.Objective(vocab, "mixce"))(outputs, labels)
        assert caplog.messages == []
        compute_loss_func(dl.Objective(vocab, "dist2"))(outputs, labels)
        assert len(caplog.messages) == 1
