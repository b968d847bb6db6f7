"""What is learned in a comparison and by which model.

Either a small model learns the built-in problems from scratch, or a pretrained one is fine-tuned on a data set.
"""

import abc
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from digitloss.data import (
    Example,
    TrainingRow,
    character_tokenizer,
    encode_examples,
    generate_problems,
    read_examples,
)
from digitloss.errors import DatasetError, TokenizerError
from digitloss.hub import fingerprint, load_model, load_tokenizer

Split = Literal["validation", "test"]


class Question(NamedTuple):
    """A held-out question."""

    kind: str
    question: str
    gold: str
    """The right answer, whole."""


@dataclass(frozen=True, kw_only=True)
class AbstractTask(abc.ABC):
    """Data and model. Subclasses are frozen, so that a task is its fields."""

    kind: ClassVar[str]
    """Its name in result files."""
    template: ClassVar[str]
    eval_batch_size: ClassVar[int]
    """Rows evaluated, or questions asked, at a time."""
    is_fused: ClassVar[bool]
    """True where the vocabulary is large enough for the one-pass objective to pay."""

    max_new_tokens: int | None = 12
    """Longest answer, in tokens."""
    num_validation: int = 400
    """Questions among which alpha is chosen."""
    num_test: int = 400
    """Questions of the result, the same for every loss and seed."""

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("max_new_tokens", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                check_at_least_one(name, getattr(self, name))

    @property
    @abc.abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; it has an end-of-text and a padding token."""

    @abc.abstractmethod
    def training_rows(self, seed: int) -> list[TrainingRow]:
        """Rows to train on."""

    @abc.abstractmethod
    def questions(self, split: Split) -> list[Question]:
        """Held-out questions: none is a training row's, and no two splits share one."""

    def fingerprints(self) -> dict[str, str]:
        """Return what changes when data or model do, where the fields of the task do not say it."""
        return {}

    @property
    def answer_tokens(self) -> int:
        """Longest answer that is asked for, in tokens."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        golds = [question.gold for split in get_args(Split) for question in self.questions(split)]
        return 8 + max(len(ids) for ids in self.tokenizer(golds, add_special_tokens=False)["input_ids"])

    @abc.abstractmethod
    def new_model(self, seed: int) -> PreTrainedModel:
        """Return the model as it is before training, in float32."""


@dataclass(frozen=True, kw_only=True)
class ProblemTask(AbstractTask):
    """The built-in problems and a small Llama that learns them from scratch, one token a character."""

    kind: ClassVar[str] = "problems"
    template: ClassVar[str] = "{prompt} "
    eval_batch_size: ClassVar[int] = 200
    is_fused: ClassVar[bool] = False

    num_train: int = 60_000
    """Training problems, drawn anew for each seed."""
    width: int = 96
    """Hidden size."""
    layers: int = 3
    """Layers."""
    heads: int = 6
    """Attention heads."""

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        for name in ("num_train", "width", "layers", "heads"):
            check_at_least_one(name, getattr(self, name))
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the heads, got {self.width} and {self.heads}")

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of characters."""
        return character_tokenizer()

    def training_rows(self, seed: int) -> list[TrainingRow]:
        """Encode the training problems of a seed."""
        problems = generate_problems(self.num_train, seed=seed)
        examples = [Example(prompt=problem.question, completion=problem.answer) for problem in problems]
        return encode_examples(self.tokenizer, examples, template=self.template)

    def questions(self, split: Split) -> list[Question]:
        """Make the problems of a split; they depend on their number alone."""
        size = {"validation": self.num_validation, "test": self.num_test}[split]
        problems = generate_problems(size, seed=0, split=split)
        return [Question(problem.kind, problem.question, problem.answer) for problem in problems]

    def new_model(self, seed: int) -> PreTrainedModel:
        """Make a Llama; unit-variance embeddings and matrices of 1 / sqrt(inputs) learn arithmetic soonest."""
        config = LlamaConfig(
            vocab_size=len(self.tokenizer),
            hidden_size=self.width,
            intermediate_size=2 * self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            bos_token_id=None,
            **_rope(theta=100.0),
        )
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim == 2:
                    torch.nn.init.normal_(weight, std=1.0 if "embed" in name else weight.shape[1] ** -0.5)
        return model


@dataclass(frozen=True, kw_only=True)
class FineTuning(AbstractTask):
    """A pretrained model and a set of examples.

    Questions are held out by a hash of the prompt, so that rows of one prompt stay together and neither the order of
    the file nor a seed decides.
    """

    kind: ClassVar[str] = "fine-tuning"
    template: ClassVar[str] = "Question: {prompt}\nAnswer: "
    eval_batch_size: ClassVar[int] = 8
    is_fused: ClassVar[bool] = True

    max_new_tokens: int | None = None
    """Longest answer, in tokens; None: the longest right answer and eight more, so that no right one is cut."""
    num_validation: int = 50
    """Questions among which alpha is chosen."""
    num_test: int = 100
    """Questions of the result, the same for every loss and seed."""

    model: str
    """Folder or hub name of a causal language model with safetensors weights."""
    tokenizer_name: str | None = None
    """Folder or hub name of the tokenizer; None: the model's."""
    data: str
    """File, or hub name, of the examples."""
    data_config: str | None = None
    """Configuration of a hub set."""
    data_split: str = "train"
    """Split of a hub set."""
    num_rows: int | None = None
    """Rows of the data that are used, held-out ones among them, from the start of the file; None: all."""

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if self.num_rows is not None:
            check_at_least_one("num_rows", self.num_rows)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, with the end of text for padding where it has no padding."""
        tokenizer = load_tokenizer(self.tokenizer_name or self.model)
        if tokenizer.eos_token is None:
            raise TokenizerError(f"the tokenizer of {self.model!r} has no end-of-text token to end answers with")
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        found: PreTrainedTokenizerBase = tokenizer
        return found

    def training_rows(self, seed: int) -> list[TrainingRow]:
        """Encode the examples that are not held out; the same for every seed."""
        del seed
        return encode_examples(self.tokenizer, self._splits["train"], template=self.template)

    def questions(self, split: Split) -> list[Question]:
        """Return the held-out examples."""
        return [Question("data", example.prompt, example.completion) for example in self._splits[split]]

    def fingerprints(self) -> dict[str, str]:
        """Return hashes of the training rows, of the model and of its tokenizer."""
        rows = json.dumps([[example.prompt, example.completion] for example in self._splits["train"]])
        return {
            "training rows": hashlib.sha256(rows.encode()).hexdigest(),
            "model": fingerprint(self.model),
            **({"tokenizer": fingerprint(self.tokenizer_name)} if self.tokenizer_name else {}),
        }

    def new_model(self, seed: int) -> PreTrainedModel:
        """Load the model."""
        torch.manual_seed(seed)
        model: PreTrainedModel = load_model(self.model)
        return model

    @cached_property
    def _splits(self) -> dict[str, list[Example]]:
        examples = read_examples(self.data, config=self.data_config, split=self.data_split)[: self.num_rows]
        prompts = sorted({example.prompt for example in examples}, key=_hash)
        num_held_out = self.num_test + self.num_validation
        if len(prompts) <= num_held_out:
            raise DatasetError(
                f"{self.data}: {len(prompts)} different prompts in {len(examples)} rows leave none to train on, with"
                f" {self.num_test} held out for the test and {self.num_validation} for validation: lower num_test or"
                " num_validation"
            )
        split_of = {prompt: "test" for prompt in prompts[: self.num_test]}
        split_of |= {prompt: "validation" for prompt in prompts[self.num_test : num_held_out]}
        splits: dict[str, list[Example]] = {"train": [], "validation": [], "test": []}
        for example in examples:
            splits[split_of.get(example.prompt, "train")].append(example)
        return splits


@lru_cache(maxsize=2)
def rows_of(task: AbstractTask, seed: int) -> list[TrainingRow]:
    """Training rows of a task; those used last are kept, since every loss has the same."""
    return task.training_rows(seed)


def check_at_least_one(name: str, value: int) -> None:
    """Raise ValueError where a number of things is below 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _hash(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def _rope(theta: float) -> dict[str, Any]:
    """Rotary positions under the name that the installed transformers reads; another name is ignored there."""
    if "rope_parameters" in LlamaConfig().to_dict():
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    return {"rope_theta": theta}
