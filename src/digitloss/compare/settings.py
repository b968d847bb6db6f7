"""What a comparison does: losses, data, model and optimiser. Work is fixed in steps, not in time."""

import dataclasses
from dataclasses import dataclass
from types import MappingProxyType

from digitloss import losses as all_losses
from digitloss.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a comparison on the built-in problems."""

    losses: tuple[str, ...] = ("cross_entropy", "number_token", "dist2", "digit_entropy")
    """Names of the losses, each with its default weight and options."""
    seed: int = 0
    """Seed of the training problems, the start of the model and the order of the batches."""
    num_train: int = 60_000
    """Distinct training problems."""
    num_test: int = 400
    """Held-out problems, the same for every loss and seed."""
    steps: int = 2_000
    """Optimiser steps."""
    batch_size: int = 32
    """Problems a step."""
    learning_rate: float = 2.5e-3
    """Highest learning rate; it rises over the first 50 steps and falls linearly to 0."""
    weight_decay: float = 0.1
    """Weight decay of AdamW."""
    width: int = 96
    """Hidden size of the Llama."""
    layers: int = 3
    """Layers of the Llama."""
    heads: int = 6
    """Attention heads of the Llama."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.losses:
            raise ValueError("losses must name at least one loss, got none")
        for name in self.losses:
            if name not in all_losses.names():
                raise unknown_name("loss", name, all_losses.names())
        if len(set(self.losses)) < len(self.losses):
            raise ValueError(f"losses must differ, got {list(self.losses)}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("losses", "seed", "weight_decay"):
                continue
            if value <= 0:
                raise ValueError(f"{field.name} must be positive, got {value}")
        if self.seed < 0 or self.weight_decay < 0:
            raise ValueError(f"seed and weight_decay must be at least 0, got {self.seed} and {self.weight_decay}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice the heads, got {self.width} and {self.heads}")


PRESETS = MappingProxyType({"quick": Settings()})
"""Named settings: `quick` is the demo, one seed in a few minutes on two cores."""
