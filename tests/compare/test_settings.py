"""Settings of a comparison."""

import pytest

from digitloss.compare import FINE_TUNING, PRESETS, FineTuning, ProblemTask, Settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"losses": ()}, "losses must name at least one loss"),
        ({"losses": ("digit_entropi",)}, "unknown loss 'digit_entropi', did you mean 'digit_entropy'"),
        ({"losses": ("dist2", "dist2")}, r"losses must have different names, got \['dist2', 'dist2'\]"),
        ({"losses": ("a=dist2", "a=mixce")}, r"losses must have different names, got \['a', 'a'\]"),
        ({"seeds": ()}, "seeds must be different numbers, at least one"),
        ({"seeds": (1, 1)}, r"seeds must be different numbers, at least one, got \[1, 1\]"),
        ({"seeds": (-1,)}, r"seeds must lie in 0\.\.999998, got \[-1\]"),
        ({"seeds": (999_999,)}, "seeds must lie in"),
        ({"alphas": (0.1, 0.0)}, "alphas must be different positive numbers"),
        ({"alphas": (0.1, 0.1)}, "alphas must be different positive numbers"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be positive, got -1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 18, "heads": 4}, "width must be a multiple of twice the heads, got 18 and 4"),
        ({"num_test": 0}, "num_test must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
    ],
)
def test_bad_problem_tasks(options, message):
    with pytest.raises(ValueError, match=message):
        ProblemTask(**options)


def test_bad_fine_tuning():
    with pytest.raises(ValueError, match="num_rows must be at least 1, got 0"):
        FineTuning(model="m", data="d", num_rows=0)
    assert Settings(task=FineTuning(model="m", data="d"), **FINE_TUNING).steps == 60


@pytest.mark.parametrize(
    ("losses", "baseline"),
    [
        (("dist2", "cross_entropy"), "cross_entropy"),
        (("dist2", "again=cross_entropy:stream=1", "plain=cross_entropy"), "plain"),
        (("dist2", "mixce"), "dist2"),
    ],
)
def test_the_baseline_is_cross_entropy_or_the_first(losses, baseline):
    assert Settings(losses=losses).baseline == baseline


def test_alpha_is_chosen_only_where_it_is_not_given():
    settings = Settings(losses=("dist2", "b=dist2:alpha=1", "cross_entropy"), alphas=(0.1, 0.3))
    assert [settings.is_tuned(variant) for variant in settings.variants] == [True, False, False]
    assert not any(map(Settings().is_tuned, Settings().variants))


def test_presets():
    assert PRESETS["quick"].losses == ("cross_entropy", "number_token", "dist2", "digit_entropy")
    assert len(PRESETS["full"].seeds) == 5
    assert {variant.loss for variant in PRESETS["full"].variants} == {
        *("cross_entropy", "number_token", "dist2", "digit_entropy", "emo", "mixce")
    }
