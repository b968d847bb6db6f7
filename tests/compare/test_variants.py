"""Losses as they are written on the command line."""

import pytest

from digitloss.compare import Variant


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("dist2", ("dist2", "dist2", {}, None, "tokens", 0)),
        ("dist2:tau=4,alpha=0.3", ("dist2:tau=4,alpha=0.3", "dist2", {"tau": 4.0}, 0.3, "tokens", 0)),
        ("again=cross_entropy:stream=2", ("again", "cross_entropy", {}, None, "tokens", 2)),
        (
            "mine=digit_entropy:distance=absolute,normalize=digits",
            ("mine", "digit_entropy", {"distance": "absolute"}, None, "digits", 0),
        ),
        (
            "emo:rows=frozen,max_ratio=3",
            ("emo:rows=frozen,max_ratio=3", "emo", {"rows": "frozen", "max_ratio": 3.0}, None, "tokens", 0),
        ),
    ],
)
def test_forms(text, fields):
    variant = Variant.parse(text)
    found = (variant.label, variant.loss, variant.options, variant.alpha, variant.normalize, variant.stream)
    assert found == fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a loss is written \[NAME=\]LOSS"),
        ("dist2:", r"a loss is written \[NAME=\]LOSS"),
        ("[/x]=dist2", r"a loss is written \[NAME=\]LOSS"),
        ("a$b$=dist2", r"a loss is written \[NAME=\]LOSS"),
        ("a=b=dist2", r"a loss is written \[NAME=\]LOSS"),
        ("dist", "unknown loss 'dist', did you mean 'dist2'"),
        ("dist2:tau", "options of a loss are written OPTION=VALUE, got 'tau'"),
        ("dist2:tau=1,tau=2", "option 'tau' is there twice"),
        ("dist2:tua=1", "unknown option of dist2 'tua', did you mean 'tau'"),
        ("dist2:tau=-1", "tau must be a positive finite number, got -1"),
        ("dist2:alpha=-1", "alpha must be a finite number of at least 0, got -1"),
        ("dist2:normalize=rows", "unknown normalize 'rows'"),
        ("mixce:alpha=1", "mixce replaces cross-entropy and takes no alpha"),
        ("dist2:stream=0.5", "stream must be a whole number of at least 0, got 0.5"),
        ("dist2:stream=-1", "stream must be a whole number of at least 0, got -1"),
        ("dist2:stream=x", "stream must be a whole number of at least 0, got 'x'"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_errors(text, message):
    with pytest.raises(ValueError, match=message):
        Variant.parse(text)


def test_streams_have_other_seeds():
    plain, again = Variant.parse("dist2"), Variant.parse("a=dist2:stream=1")
    seeds = range(1_000_000)
    assert plain.seed(3) == 3
    assert again.seed(3) not in seeds
    assert {again.seed(seed) for seed in range(5)}.isdisjoint(
        Variant.parse("b=dist2:stream=2").seed(s) for s in range(5)
    )


def test_only_terms_take_alpha():
    assert Variant.parse("dist2").takes_alpha
    assert not Variant.parse("cross_entropy").takes_alpha
    assert not Variant.parse("emo").takes_alpha
