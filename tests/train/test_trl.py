"""NumericSFTTrainer: TRL's own batches, against the objective on plain logits."""

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import Gemma2Config, Gemma2ForCausalLM, MixtralConfig, MixtralForCausalLM

import digitloss as dl
from digitloss.errors import ModelError, TermNotCalledError
from fakes import one_digit_tokenizer, small_llama
from training import parameters, relative_difference

trl = pytest.importorskip("trl")
train_trl = pytest.importorskip("digitloss.train.trl")

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

EXAMPLES = [
    ("2+2=", "4.50 or 5"),
    ("12*3=", "36"),
    ("half of 7?", "3.5"),
    ("a", "no number at all"),
    ("9-10", "-1"),
    ("1000*2", "2,000.25"),
    ("x", "y"),
    ("99+1", "100 and 7"),
]
TOKENIZER = one_digit_tokenizer()
LOSSES = ["cross_entropy", "digit_entropy", "number_token", "dist2", "emo", "mixce"]


def dataset(examples=EXAMPLES):
    return Dataset.from_list([{"prompt": prompt, "completion": completion} for prompt, completion in examples])


def make(tmp_path, objective, *, model=None, examples=EXAMPLES, trainer=None, lora=None, **options):
    defaults = {
        "output_dir": str(tmp_path),
        "max_steps": 1,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "per_device_train_batch_size": 8,
        "gradient_checkpointing": False,
        "max_length": 64,
    }
    trainer = trainer or train_trl.NumericSFTTrainer
    extra = {"objective": objective} if objective is not None else {}
    return trainer(
        model=small_llama(len(TOKENIZER)) if model is None else model,
        args=trl.SFTConfig(**{**defaults, **options}),
        train_dataset=dataset(examples),
        eval_dataset=dataset(examples[:5]),
        processing_class=TOKENIZER,
        peft_config=lora,
        **extra,
    )


def trained(tmp_path, objective, **options):
    trainer = make(tmp_path, objective, **options)
    before = parameters(trainer.model)
    trainer.train()
    return trainer, parameters(trainer.model) - before


def objective_of(loss="digit_entropy", **options):
    return dl.Objective(dl.NumberVocab.from_tokenizer(TOKENIZER), loss, **options)


def expected_update(trainer, objective):
    """One step of gradient descent on the objective of plain logits, of the trainer's own batch."""
    model = trainer.model
    batch = next(iter(trainer.get_train_dataloader()))
    labels = batch.pop("labels")
    model.zero_grad()
    plain = dl.Objective(
        objective.vocab,
        objective.loss,
        alpha=None if objective.loss.name in ("cross_entropy", "emo", "mixce") else objective.alpha,
        normalize=objective.normalize,
        fused=False,
    )
    head = model.get_output_embeddings().weight
    logits = model(**{k: v for k, v in batch.items() if k != "completion_mask"}).logits
    loss = plain(logits, labels, position_ids=batch.get("position_ids"), head=head)
    loss.backward()
    update = torch.cat([-0.5 * p.grad.flatten() for p in model.parameters() if p.requires_grad])
    model.zero_grad()
    return loss.item(), update


@pytest.mark.parametrize("normalize", ["tokens", "digits"])
@pytest.mark.parametrize("loss", LOSSES)
def test_one_step_is_the_gradient_of_the_objective(tmp_path, loss, normalize):
    objective = objective_of(loss, normalize=normalize)
    trainer = make(tmp_path, objective)
    loss_value, expected = expected_update(trainer, objective)
    before = parameters(trainer.model)
    trainer.train()
    assert relative_difference(parameters(trainer.model) - before, expected) < 1e-5
    assert trainer.state.log_history[0]["loss"] == pytest.approx(loss_value, rel=1e-4)


@pytest.mark.parametrize("options", [{"packing": True}, {"padding_free": True}], ids=["packing", "padding_free"])
def test_packing_and_padding_free_equal_padding(tmp_path, options):
    objective = objective_of(alpha=1.0)
    _, expected = trained(tmp_path, objective)
    assert expected.norm() > 0
    options = {**options, "max_length": None} if "padding_free" in options else {**options, "max_length": 512}
    trainer = make(tmp_path, objective, **options)
    batch = next(iter(trainer.get_train_dataloader()))
    assert len(batch["input_ids"]) == 1
    assert "attention_mask" not in batch
    before = parameters(trainer.model)
    trainer.train()
    assert relative_difference(parameters(trainer.model) - before, expected) < 1e-5


@pytest.mark.parametrize("lora", [None, LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)])
@pytest.mark.parametrize("normalize", ["tokens", "digits"])
def test_accumulation_changes_nothing(tmp_path, normalize, lora):
    objective = objective_of(normalize=normalize, alpha=0.7)
    torch.manual_seed(3)
    full, expected = trained(tmp_path, objective, lora=lora, seed=1)
    for batch_size, accumulation in [(4, 2), (2, 4)]:
        torch.manual_seed(3)
        split, got = trained(
            tmp_path,
            objective,
            lora=lora,
            seed=1,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
        )
        assert relative_difference(got, expected) < 1e-5
        for name in ("loss", "cross_entropy", "numeric_loss", "digit_density", "digit_accuracy"):
            assert split.state.log_history[0][name] == pytest.approx(full.state.log_history[0][name], rel=1e-4)


def test_alpha_zero_trains_as_trl(tmp_path):
    plain, expected = trained(tmp_path, None, trainer=trl.SFTTrainer)
    ours, got = trained(tmp_path, objective_of(alpha=0.0))
    assert relative_difference(got, expected) < 1e-6
    assert ours.state.log_history[0]["loss"] == pytest.approx(plain.state.log_history[0]["loss"], rel=1e-6)
    assert {"entropy", "mean_token_accuracy", "num_tokens"} <= set(ours.state.log_history[0])


def test_no_second_forward(tmp_path):
    trainer = make(tmp_path, objective_of(), per_device_train_batch_size=2, gradient_accumulation_steps=4)
    calls = []
    trainer.model.model.register_forward_hook(lambda *_: calls.append(1))
    trainer.train()
    assert len(calls) == 4


@pytest.mark.parametrize("loss", ["digit_entropy", "emo"])
def test_evaluation_does_not_depend_on_the_batch_size(tmp_path, loss):
    objective = objective_of(loss)
    found = [make(tmp_path, objective, per_device_eval_batch_size=size).evaluate() for size in (1, 2, 5)]
    for name in ("eval_loss", "eval_cross_entropy", "eval_numeric_loss", "eval_digit_accuracy"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-5)
        assert found[2][name] == pytest.approx(found[0][name], rel=1e-5)


def test_a_softcap(tmp_path):
    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=len(TOKENIZER),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.5,
    )
    model = Gemma2ForCausalLM(config)
    torch.nn.init.normal_(model.lm_head.weight)
    objective = objective_of()
    trainer = make(tmp_path, objective, model=model)
    _, expected = expected_update(trainer, objective)
    before = parameters(trainer.model)
    trainer.train()
    assert relative_difference(parameters(trainer.model) - before, expected) < 1e-4


def mixtral():
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=2,
        output_router_logits=True,
        router_aux_loss_coef=0.1,
    )
    return MixtralForCausalLM(config)


def test_the_auxiliary_loss_of_experts_stays(tmp_path):
    ours, got = trained(tmp_path, objective_of(alpha=0.0), model=mixtral())
    plain, expected = trained(tmp_path, None, trainer=trl.SFTTrainer, model=mixtral())
    assert relative_difference(got, expected) < 1e-6
    assert ours.state.log_history[0]["aux_loss"] == plain.state.log_history[0]["aux_loss"]
    with pytest.raises(ValueError, match="emo replaces cross-entropy, and the auxiliary loss"):
        make(tmp_path, objective_of("emo"), model=mixtral())


def test_a_model_that_does_something_else_with_its_logits(tmp_path):
    model = small_llama(len(TOKENIZER))
    torch.nn.init.normal_(model.lm_head.weight)
    trainer = make(tmp_path, objective_of(), model=model)
    model.config.final_logit_softcapping = 0.1  # after TRL has read it
    with pytest.raises(ModelError, match="does something else with its logits"):
        trainer.train()


def test_a_replaced_forward_is_noticed(tmp_path):
    trainer = make(tmp_path, objective_of())
    model = trainer.model
    fused = model.forward.__wrapped__
    model.forward = fused
    with pytest.raises(TermNotCalledError, match="replaced the model's forward"):
        trainer.train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_type": "dft"}, "loss_type='dft' would replace the objective"),
        ({"average_tokens_across_devices": False}, "average_tokens_across_devices=True"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor has no effect"),
    ],
)
def test_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, objective_of(), **options)


def test_what_is_no_objective(tmp_path, shapes_unchecked):
    with pytest.raises(TypeError, match="expected an Objective, got 'digit_entropy'"):
        make(tmp_path, "digit_entropy")
