"""The exceptions of the package.

```
DigitlossError
 |- TokenizerError (ValueError)       the tokenizer has nothing that a numeric loss could use
 |- ModelError (ValueError)           a model cannot be loaded
 |- DatasetError (ValueError)         a data file or row cannot be used; the message names file and row
 |- MissingExtraError (ImportError)   an optional dependency is absent; the message holds the pip command
 `- TermNotCalledError (RuntimeError) training ran without the numeric term
```

Bad arguments raise plain `ValueError` or `TypeError`.
"""

import difflib
from collections.abc import Iterable


class DigitlossError(Exception):
    """Base of every exception that is particular to this package."""


class TokenizerError(DigitlossError, ValueError):
    """The tokenizer has nothing that a numeric loss could use."""


class ModelError(DigitlossError, ValueError):
    """A model cannot be loaded, or its head cannot be read."""


class DatasetError(DigitlossError, ValueError):
    """A data file or row cannot be used; the message names the file and the row."""


class MissingExtraError(DigitlossError, ImportError):
    """An optional dependency is absent; the message holds the pip command."""


class SandboxError(DigitlossError, RuntimeError):
    """No sandbox can be made here; the message says what to install or to allow."""


class TermNotCalledError(DigitlossError, RuntimeError):
    """Training ran without the numeric term: something replaced or bypassed it."""


def missing_extra(feature: str, extra: str) -> MissingExtraError:
    """Build the error that says which extra a feature needs.

    Example:
        >>> print(missing_extra("NumericTrainer", "train"))
        NumericTrainer needs packages that are not installed: pip install 'digitloss[train]'
    """
    return MissingExtraError(f"{feature} needs packages that are not installed: pip install 'digitloss[{extra}]'")


def unknown_name(what: str, name: object, choices: Iterable[str]) -> ValueError:
    """Build the error for a name that is not among the choices, offering the nearest one.

    Example:
        >>> print(unknown_name("loss", "digit_entrpy", ["digit_entropy", "dist2"]))
        unknown loss 'digit_entrpy', did you mean 'digit_entropy'? Choices: digit_entropy, dist2
    """
    names = list(choices)
    nearest = difflib.get_close_matches(str(name), names, n=1)
    hint = f", did you mean {nearest[0]!r}?" if nearest else "."
    return ValueError(f"unknown {what} {name!r}{hint} Choices: {', '.join(names)}")
