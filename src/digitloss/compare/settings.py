"""What a comparison does: losses, seeds, task and optimiser. Work is fixed in steps, not in time."""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType

from digitloss.compare.tasks import AbstractTask, ProblemTask
from digitloss.compare.variants import Variant

TUNING_SEED = 999_999
"""Seed of the training runs among which alpha is chosen; no result uses it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a comparison."""

    losses: tuple[str, ...] = ("cross_entropy", "number_token", "dist2", "digit_entropy")
    """The losses, as `Variant.parse` reads them. Differences are to `cross_entropy`, or else to the first."""
    seeds: tuple[int, ...] = (0,)
    """Seeds: each decides the training problems, the start of the model and the order of the batches."""
    alphas: tuple[float, ...] = ()
    """Weights among which that of each term without one is chosen, on validation questions; empty: the defaults."""
    task: AbstractTask = dataclasses.field(default_factory=ProblemTask)
    """What is learned, by which model."""
    steps: int = 2_000
    """Optimiser steps."""
    batch_size: int = 32
    """Rows a step."""
    learning_rate: float = 2.5e-3
    """Highest learning rate; it rises over the first 50 steps (half of them, where they are fewer than 100) and falls
    linearly to 0."""
    weight_decay: float = 0.1
    """Weight decay of AdamW."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.losses:
            raise ValueError("losses must name at least one loss, got none")
        labels = [variant.label for variant in self.variants]
        if len(set(labels)) < len(labels):
            raise ValueError(f"losses must have different names, got {labels}: write NAME=LOSS to give one another")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must be different numbers, at least one, got {list(self.seeds)}")
        if not all(0 <= seed < TUNING_SEED for seed in self.seeds):
            raise ValueError(f"seeds must lie in 0..{TUNING_SEED - 1}, got {list(self.seeds)}")
        if len(set(self.alphas)) < len(self.alphas) or not all(alpha > 0 for alpha in self.alphas):
            raise ValueError(f"alphas must be different positive numbers, got {list(self.alphas)}")
        for name in ("steps", "batch_size", "learning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")

    @property
    def variants(self) -> list[Variant]:
        """The losses, read."""
        return [Variant.parse(text) for text in self.losses]

    @property
    def baseline(self) -> str:
        """Label of the variant to which the others are compared."""
        variants = self.variants
        plain = [variant.label for variant in variants if variant.loss == "cross_entropy" and not variant.stream]
        return (plain or [variants[0].label])[0]

    def is_tuned(self, variant: Variant) -> bool:
        """Say whether alpha of a variant is chosen on the validation questions."""
        return bool(self.alphas) and variant.alpha is None and variant.takes_alpha


PRESETS = MappingProxyType(
    {
        "quick": Settings(),
        "full": Settings(
            losses=(
                "cross_entropy",
                "number_token",
                "dist2",
                "digit_entropy",
                "emo",
                "mixce",
                "cross_entropy_again=cross_entropy:stream=1",
            ),
            seeds=(0, 1, 2, 3, 4),
            alphas=(0.03, 0.1, 0.3, 1.0),
            task=ProblemTask(width=128, heads=8, num_test=1_000, num_validation=1_000),
            steps=2_500,
        ),
    }
)
"""Named settings: `quick` is the demo, one seed in a few minutes on two cores; `full` has all losses and a second
cross-entropy that shows what chance alone does, five seeds and a choice of alpha, in under three hours."""

FINE_TUNING = MappingProxyType({"steps": 60, "batch_size": 8, "learning_rate": 5e-5, "weight_decay": 0.0})
"""Optimiser settings where a pretrained model is fine-tuned and no others are given."""
