"""The cases that are measured: what each calls, forward, on the inputs of a setting."""

import importlib.util
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import digitloss.losses as losses
from digitloss.bench.settings import BASELINE, Setting
from digitloss.errors import DigitlossError, unknown_name
from digitloss.losses import Objective
from digitloss.numbers import NumberVocab, find_digits


class Unavailable(DigitlossError):
    """A case that cannot be run here; the message says why."""


class Inputs(NamedTuple):
    """What a case reads."""

    labels: Tensor
    """Not shifted, [B, T]."""
    shift_labels: Tensor
    """Shifted and flattened, -100 at the end of each row."""
    scores: Tensor
    """Logits [B, T, V] or hidden states [B, T, H], with gradient."""
    head: Tensor
    """[V, H], with gradient where the scores are hidden states; [0, H] where no case reads it."""

    @property
    def given_head(self) -> Tensor | None:
        """The head, where there is one."""
        return self.head if len(self.head) else None

    @property
    def leaves(self) -> list[Tensor]:
        """What gets a gradient."""
        return [x for x in (self.scores, self.head) if x.requires_grad]


Call = Callable[[Inputs], Tensor | None]
"""Returns the loss to go backward from; None where there is nothing to."""


def make_vocab(setting: Setting) -> NumberVocab:
    """Return a vocabulary whose first tokens are the digit tokens of a setting."""
    lengths = range(1, setting.longest_token + 1)
    digits = ["".join(token) for length in lengths for token in product("0123456789", repeat=length)]
    return NumberVocab.from_tokens([*digits, *["x"] * (setting.vocab_size - len(digits))])


def make_inputs(setting: Setting) -> Inputs:
    """Draw labels and logits, or hidden states and head."""
    generator = torch.Generator().manual_seed(0)
    shape, num_digit_tokens = (setting.batch_size, setting.length), setting.num_digit_tokens
    labels = torch.randint(num_digit_tokens, setting.vocab_size, shape, generator=generator)
    is_digit = torch.rand(shape, generator=generator) < setting.digits
    labels = torch.where(is_digit, torch.randint(0, num_digit_tokens, shape, generator=generator), labels)
    labels = labels.to(setting.device)
    width = {"logits": setting.vocab_size, "hidden": setting.hidden_size, "numbers": 1}[setting.path]
    needs_head = setting.path == "hidden" or any(case.endswith(":emo") for case in setting.cases)
    scores, head = (
        torch.empty(size, dtype=setting.torch_dtype, device=setting.device).normal_(std=std)
        for size, std in (
            ((*shape, width), 1.0),
            ((setting.vocab_size if needs_head else 0, setting.hidden_size), setting.hidden_size**-0.5),
        )
    )
    return Inputs(
        labels,
        F.pad(labels[:, 1:], (0, 1), value=-100).flatten(),
        scores.requires_grad_(setting.path != "numbers"),
        head.requires_grad_(setting.path == "hidden"),
    )


def check_case(case: str, setting: Setting) -> None:
    """Raise ValueError where there is no such case, or none on the path of the setting."""
    kind, _, loss = case.partition(":")
    if kind not in _KINDS or bool(loss) != (kind in _OF_A_LOSS) or (loss and loss not in losses.names()):
        of_a_loss = [f"{kind}:{name}" for kind in _OF_A_LOSS for name in losses.names()]
        raise unknown_name("case", case, [*of_a_loss, *(kind for kind in _KINDS if kind not in _OF_A_LOSS)])
    paths = _KINDS[kind][0]
    if setting.path not in paths:
        raise ValueError(f"the case {case} is for the path {' or '.join(paths)}, not for {setting.path}")


def make_call(case: str, setting: Setting) -> Call:
    """Return what a case calls.

    Raises:
        Unavailable: It cannot be run here.
        ValueError: There is no such case.
    """
    check_case(case, setting)
    kind, _, loss = case.partition(":")
    call: Call = _KINDS[kind][1](setting, loss)
    return call


def _cross_entropy(setting: Setting, _: str) -> Call:
    def call(inputs: Inputs) -> Tensor:
        logits = inputs.scores if setting.path == "logits" else F.linear(inputs.scores, inputs.head)
        return F.cross_entropy(logits.flatten(0, 1).float(), inputs.shift_labels)

    return call


def _objective(setting: Setting, loss: str) -> Call:
    objective = Objective(make_vocab(setting), loss)
    if setting.path == "hidden":
        return lambda inputs: objective.from_hidden(inputs.scores, inputs.head, inputs.labels)
    return lambda inputs: objective(inputs.scores, inputs.labels, head=inputs.given_head)


def _autograd(setting: Setting, loss: str) -> Call:
    objective = Objective(make_vocab(setting), loss, fused=False)
    return lambda inputs: objective(inputs.scores, inputs.labels, head=inputs.given_head)


def _number_finding(setting: Setting, _: str) -> Call:
    vocab = make_vocab(setting)

    def call(inputs: Inputs) -> None:
        find_digits(vocab, inputs.labels)

    return call


def _ntloss(setting: Setting, _: str) -> Call:
    """Cross-entropy and 0.3 NTL-WAS of the package, in its fast setting."""
    _require("ntloss")
    from ntloss import NTLoss  # type: ignore[attr-defined]
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    if setting.longest_token != 1:
        raise Unavailable("ntloss: its fast setting reads one-digit tokens")
    ids = {str(index) if index < 10 else f"x{index}": index for index in range(setting.vocab_size)}
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(ids)))  # type: ignore[no-untyped-call]
    term = NTLoss(tokenizer=tokenizer, vocab_size=setting.vocab_size, reweigh=False)

    def call(inputs: Inputs) -> Tensor:
        logits, labels = inputs.scores.flatten(0, 1).float(), inputs.shift_labels
        numeric: Tensor = term(logits[None], labels[None])
        return F.cross_entropy(logits, labels) + 0.3 * numeric

    return call


def _linear_cross_entropy(setting: Setting, _: str) -> Call:
    """Torch's own, which computes chunk by chunk when it is given options."""
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        raise Unavailable(f"linear_cross_entropy: torch {torch.__version__} has none")
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=512)

    def call(inputs: Inputs) -> Tensor:
        loss: Tensor = F.linear_cross_entropy(
            inputs.scores.flatten(0, 1), inputs.head, inputs.shift_labels, options=options
        )
        return loss

    return call


def _liger(setting: Setting, _: str) -> Call:
    _require("liger_kernel", setting)
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss()

    def call(inputs: Inputs) -> Tensor:
        value: Tensor = loss(inputs.head, inputs.scores.flatten(0, 1), inputs.shift_labels)
        return value

    return call


def _cut_cross_entropy(setting: Setting, _: str) -> Call:
    _require("cut_cross_entropy", setting)
    from cut_cross_entropy import linear_cross_entropy

    def call(inputs: Inputs) -> Tensor:
        value: Tensor = linear_cross_entropy(inputs.scores.flatten(0, 1), inputs.head, inputs.shift_labels)
        return value

    return call


def _require(package: str, of_gpu: Setting | None = None) -> None:
    if of_gpu is not None and not of_gpu.device.startswith("cuda"):
        raise Unavailable(f"{package}: it needs a GPU, and the device is {of_gpu.device}")
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"{package}: it is not installed")


_OF_A_LOSS = ("objective", "autograd")
_KINDS: dict[str, tuple[tuple[str, ...], Callable[[Setting, str], Any]]] = {
    BASELINE: (("logits", "hidden"), _cross_entropy),
    "objective": (("logits", "hidden"), _objective),
    "autograd": (("logits",), _autograd),
    "number_finding": (("logits", "numbers"), _number_finding),
    "ntloss": (("logits",), _ntloss),
    "linear_cross_entropy": (("hidden",), _linear_cross_entropy),
    "liger": (("hidden",), _liger),
    "cut_cross_entropy": (("hidden",), _cut_cross_entropy),
}
"""Paths on which a kind of case runs, and what makes it."""
