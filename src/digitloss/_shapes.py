"""The letters of the tensor shapes, the same everywhere in the package.

| letter | axis |
|---|---|
| B | rows of a batch |
| T | positions of a row |
| S | targets of a row: T - 1, since the first label is none |
| N | tokens after flattening rows and positions |
| V | vocabulary: columns of the logits (may exceed the tokenizer's tokens) |
| H | hidden size |
| K | digits that one token can hold at most |
| M | digits (N * K places for them; a mask says which are there) |
| D | tokens of the vocabulary that hold a digit |
| 10 | the digit classes 0..9 |
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

Labels = Int[Tensor, "B T"]
Logits = Float[Tensor, "B T V"]
TokenLosses = Float[Tensor, "B S"]
DigitLogits = Float[Tensor, "M 10"]
DigitMask = Bool[Tensor, "M 10"]
PerDigit = Float[Tensor, " M"]
DigitValues = Int[Tensor, " M"]
