"""The fused path against plain autograd, its specification: value, gradient, terms and beliefs."""

import copy

import pytest
import torch

import digitloss as dl
from digitloss.losses import _chunked
from fakes import encode, letters_vocab


@pytest.fixture(params=dl.losses.names())
def name(request):
    return request.param


@pytest.fixture(params=["one", "several"])
def vocab(request):
    if request.param == "one":
        return letters_vocab()
    return dl.NumberVocab.from_tokens(
        [*letters_vocab().tokens, "12", "17", "34", "30", " 4", "123", "124", "200", "7."]
    )


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Five tokens a chunk, so that chunks begin and end within rows and number."""
    monkeypatch.setattr(_chunked, "chunk_size", lambda num_columns, device, has_product: 5)


def batch(vocab, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([encode(vocab, row) for row in ("a12.5 b_7,468", "_c3 b0.04a_92")])
    if len(vocab) > 17:
        labels = torch.cat([labels, torch.tensor([[19, 20, 26, 21, 23, 5, 19, 17, 24, 18, 22, 1, 3]])])
    return (3 * torch.randn(*labels.shape, len(vocab) + 3, generator=generator)).to(dtype).requires_grad_(), labels


def both(vocab, name, logits, **options):
    head = torch.randn(logits.shape[-1], 4, generator=torch.Generator().manual_seed(1))
    return [dl.Objective(vocab, name, head=head, fused=fused, **options) for fused in (True, False)]


def gradient_of(value, logits, **options):
    return torch.autograd.grad(value, logits, **options)[0]


@pytest.mark.parametrize("normalize", ["tokens", "digits"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_value_and_gradient(vocab, name, normalize, is_weighted):
    logits, labels = batch(vocab)
    generator = torch.Generator().manual_seed(2)
    weights = {weight: torch.rand(labels.shape, generator=generator) for weight in ("loss_weights", "numeric_weights")}
    options = {"num_items_in_batch": 50, "num_digits_in_batch": 9, **(weights if is_weighted else {})}
    values = [objective(logits, labels, **options) for objective in both(vocab, name, logits, normalize=normalize)]
    torch.testing.assert_close(*values, rtol=1e-10, atol=0)
    torch.testing.assert_close(*(gradient_of(value, logits) for value in values), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions(vocab, name, dtype):
    logits, labels = batch(vocab, dtype)
    fused, plain = (objective(logits, labels) for objective in both(vocab, name, logits))
    assert fused.dtype == torch.float32
    torch.testing.assert_close(fused, plain, rtol=1e-6, atol=0)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    got, expected = gradient_of(fused, logits), gradient_of(plain, logits)
    assert got.dtype == dtype
    assert (got - expected).norm() <= tolerance * expected.norm()


def test_terms_and_beliefs(vocab, name):
    logits, labels = batch(vocab)
    fused, plain = (objective.measure(logits, labels)[1] for objective in both(vocab, name, logits))
    for got, expected in zip((*fused.terms, *fused[1:]), (*plain.terms, *plain[1:]), strict=True):
        torch.testing.assert_close(got, expected, check_dtype=False)
        assert not got.requires_grad
        assert not expected.requires_grad


def test_shifted_and_flattened_labels(vocab, name):
    logits, labels = batch(vocab)
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    fused, plain = both(vocab, name, logits)
    expected = plain(logits, shift_labels=shifted)
    for arguments in ((logits, shifted), (logits.flatten(0, 1), shifted.flatten())):
        value = fused(arguments[0], shift_labels=arguments[1])
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient_of(value, logits), gradient_of(expected, logits, retain_graph=True))


def test_logits_that_are_a_view_are_not_copied_or_changed(vocab, name):
    logits, labels = batch(vocab)
    wide = torch.cat([logits, logits], 1).detach().requires_grad_()
    before = wide.detach().clone()
    view = wide[:, : labels.shape[1]]
    assert not view.is_contiguous()
    fused, plain = (objective(view, labels) for objective in both(vocab, name, logits))
    torch.testing.assert_close(gradient_of(fused, wide), gradient_of(plain, wide))
    assert torch.equal(wide, before)


def test_a_scaled_loss_and_a_second_backward(vocab, name):
    logits, labels = batch(vocab)
    fused, plain = (objective(logits, labels) for objective in both(vocab, name, logits))
    expected = 3.0 * gradient_of(plain, logits)
    first = gradient_of(3.0 * fused, logits, retain_graph=True)
    kept = first.clone()
    second = gradient_of(3.0 * fused, logits)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, expected)
    assert torch.equal(first, kept)


def test_without_gradients(vocab, name):
    logits, labels = batch(vocab)
    fused, plain = both(vocab, name, logits)
    with torch.no_grad():
        value = fused(logits, labels)
    assert not value.requires_grad
    torch.testing.assert_close(value, plain(logits, labels).detach())
    torch.testing.assert_close(fused(logits.detach(), labels), value)


def test_a_second_derivative_is_refused(vocab, name):
    logits, labels = batch(vocab)
    fused, _ = both(vocab, name, logits)
    with pytest.raises(RuntimeError, match=r"the fused objective has no second derivative .*fused=False"):
        gradient_of(fused(logits, labels), logits, create_graph=True)


def test_under_autocast(vocab, name):
    logits, labels = batch(vocab, torch.float32)
    fused, _ = both(vocab, name, logits)
    expected = fused(logits, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fused(logits, labels) == expected


def test_an_objective_is_copied_with_its_path(vocab):
    assert copy.deepcopy(dl.Objective(vocab, fused=False)).fused is False


@pytest.mark.parametrize(
    ("device", "has_product", "size"),
    [("cpu", False, 2**21 // 10**5), ("cpu", True, 256), ("cuda", False, 2**26 // 10**5)],
)
def test_chunks_fit_the_cache_or_are_small_beside_the_memory(monkeypatch, device, has_product, size):
    monkeypatch.undo()
    assert _chunked.chunk_size(10**5, torch.device(device), has_product=has_product) == size
    assert _chunked.chunk_size(10**9, torch.device(device), has_product=has_product) == (256 if has_product else 1)


HIDDEN = 6


def hidden_batch(vocab, dtype=torch.float64, bias=False):
    _, labels = batch(vocab)
    generator = torch.Generator().manual_seed(3)
    hidden = (2 * torch.randn(*labels.shape, HIDDEN, generator=generator)).to(dtype).requires_grad_()
    head = torch.nn.Linear(HIDDEN, len(vocab) + 3, bias=bias, dtype=torch.float64)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return hidden, head.to(dtype), labels


def objective_of(vocab, name, head, **options):
    return dl.Objective(vocab, name, head=head, **options)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("normalize", ["tokens", "digits"])
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_from_hidden(vocab, name, bias, normalize, size):
    hidden, head, labels = hidden_batch(vocab, bias=bias)
    objective = objective_of(vocab, name, head, normalize=normalize)
    plain = objective_of(vocab, name, head, normalize=normalize, fused=False)
    generator = torch.Generator().manual_seed(2)
    options = {
        "num_items_in_batch": 50,
        "num_digits_in_batch": 9,
        "loss_weights": torch.rand(labels.shape, generator=generator),
        "numeric_weights": torch.rand(labels.shape, generator=generator),
    }
    inputs = [hidden, *head.parameters()]
    expected = plain(head(hidden), labels, **options)
    value = objective.from_hidden(hidden, head, labels, chunk_size=size, **options)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
    for got, want in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "head_of", [lambda head: head.weight, lambda head: head, lambda head: dl.losses.Head(head.weight)]
)
def test_a_head_is_a_weight_a_module_or_a_head(vocab, name, head_of):
    hidden, head, labels = hidden_batch(vocab)
    objective = objective_of(vocab, name, head)
    torch.testing.assert_close(objective.from_hidden(hidden, head_of(head), labels), objective(head(hidden), labels))


@pytest.mark.parametrize("options", [{"scale": 0.25}, {"softcap": 5.0}, {"scale": 0.5, "softcap": 3.0}])
def test_scaled_and_bounded_logits(vocab, name, options):
    """Cohere and Granite scale their logits, Gemma bounds them."""
    hidden, head, labels = hidden_batch(vocab)
    scale, softcap = options.get("scale", 1.0), options.get("softcap")
    logits = scale * head(hidden)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    objective = objective_of(vocab, name, head)
    inputs = [hidden, head.weight]
    value = objective.from_hidden(hidden, dl.losses.Head(head.weight, **options), labels, chunk_size=3)
    expected = objective(logits, labels)
    torch.testing.assert_close(value, expected)
    for got, want in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-12)


def test_a_frozen_head_gets_no_gradient(vocab, name):
    hidden, head, labels = hidden_batch(vocab)
    head.weight.requires_grad_(False)
    objective = objective_of(vocab, name, head)
    value, expected = objective.from_hidden(hidden, head, labels), objective(head(hidden), labels)
    torch.testing.assert_close(gradient_of(value, hidden), gradient_of(expected, hidden))
    assert head.weight.grad is None


def test_tied_embeddings_add_up(vocab, name):
    _, head, labels = hidden_batch(vocab)
    objective = objective_of(vocab, name, head)
    gradients = []
    for path in ("hidden", "logits"):
        hidden = torch.nn.functional.embedding(labels.clamp(min=0), head.weight)
        value = objective.from_hidden(hidden, head, labels) if path == "hidden" else objective(head(hidden), labels)
        gradients.append(gradient_of(value, head.weight))
    torch.testing.assert_close(*gradients)


def test_hidden_states_twice_and_scaled(vocab, name):
    hidden, head, labels = hidden_batch(vocab)
    objective = objective_of(vocab, name, head)
    inputs = [hidden, head.weight]
    expected = torch.autograd.grad(0.5 * objective(head(hidden), labels), inputs)
    value = 0.5 * objective.from_hidden(hidden, head, labels)
    first = torch.autograd.grad(value, inputs, retain_graph=True)
    kept = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(value, inputs)
    for got in (first, second, kept):
        for one, want in zip(got, expected, strict=True):
            torch.testing.assert_close(one, want)


def test_bf16_sums_in_float32():
    """4,096 equal tokens in 128 chunks: summed in bf16 the loss would stop growing; 12 % are lost in torch 2.13."""
    vocab = letters_vocab()
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(1, 4096, HIDDEN, generator=generator).bfloat16().requires_grad_()
    head = torch.nn.Linear(HIDDEN, 200, bias=False, dtype=torch.bfloat16)
    labels = torch.randint(0, 17, (1, 4096), generator=generator)
    objective = dl.Objective(vocab)
    value = objective.from_hidden(hidden, head, labels, chunk_size=32)
    wide = hidden.detach().double().requires_grad_(), head.weight.detach().double().requires_grad_()
    expected = dl.Objective(vocab, fused=False)(wide[0] @ wide[1].T, labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-3, atol=0)
    plain = dl.Objective(vocab, fused=False)(head(hidden), labels)
    truth = torch.autograd.grad(expected, wide)
    ours = torch.autograd.grad(value, [hidden, head.weight])
    theirs = torch.autograd.grad(plain, [hidden, head.weight])
    for true, our, their in zip(truth, ours, theirs, strict=True):
        assert (our - true).norm() <= 1.05 * (their - true).norm()


def test_the_numeric_term_alone(vocab):
    """Beside a fused cross-entropy: cross-entropy plus the term is the objective."""
    hidden, head, labels = hidden_batch(vocab)
    for name in dl.losses.names():
        objective = objective_of(vocab, name, head)
        if name in ("emo", "mixce"):
            with pytest.raises(ValueError, match="replaces cross-entropy: it is no term beside it"):
                objective.numeric_from_hidden(hidden, head, labels)
            continue
        term = objective.numeric_from_hidden(hidden, head, labels, num_items_in_batch=40)
        rest = objective_of(vocab, "cross_entropy", None)(head(hidden), labels, num_items_in_batch=40)
        expected = objective(head(hidden), labels, num_items_in_batch=40)
        torch.testing.assert_close(term + rest, expected)
        torch.testing.assert_close(
            gradient_of(term + rest, hidden, retain_graph=True), gradient_of(expected, hidden, retain_graph=True)
        )


def test_errors_of_the_hidden_path(vocab):
    hidden, head, labels = hidden_batch(vocab)
    objective = dl.Objective(vocab)
    with pytest.raises(ValueError, match=r"need logits of at least .* columns, got 5"):
        objective.from_hidden(hidden, head.weight[:5], labels)
    with pytest.raises(ValueError, match=r"head must have a floating-point weight \[V, H\], got .*shape \[6\]"):
        objective.from_hidden(hidden, torch.nn.LayerNorm(6), labels)
    with pytest.raises(ValueError, match=r"hidden states of size 4 and a head .* of 6"):
        objective.from_hidden(hidden[..., :4], head, labels)
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        objective.from_hidden(hidden, head, labels, chunk_size=0)


def test_hidden_states_without_gradients(vocab, name):
    hidden, head, labels = hidden_batch(vocab)
    objective = objective_of(vocab, name, head)
    with torch.no_grad():
        value = objective.from_hidden(hidden, head, labels)
        torch.testing.assert_close(value, objective(head(hidden), labels))
    assert not value.requires_grad


@pytest.mark.parametrize("path", ["logits", "hidden"])
def test_a_loss_scaler_multiplies_before_float16_rounds(path):
    """Gradients of 1e-8 are 0 in float16, those scaled by 65,536 are not."""
    vocab = letters_vocab()
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 17, (1, 200), generator=generator)
    head = torch.nn.Linear(HIDDEN, 2_000, bias=False, dtype=torch.float16)
    hidden = torch.randn(1, 200, HIDDEN, generator=generator).half().requires_grad_()
    logits = head(hidden).detach().requires_grad_()
    gradients = []
    for fused in (True, False):
        objective = dl.Objective(vocab, fused=fused)
        if path == "logits":
            value, inputs = objective(logits, labels, num_items_in_batch=10_000), [logits]
        elif fused:
            value, inputs = (
                objective.from_hidden(hidden, head, labels, num_items_in_batch=10_000),
                [hidden, head.weight],
            )
        else:
            value, inputs = objective(head(hidden), labels, num_items_in_batch=10_000), [hidden, head.weight]
        gradients.append(torch.autograd.grad(65_536 * value, inputs))
    for got, expected in zip(*gradients, strict=True):
        assert got.dtype == torch.float16
        assert (got == 0).sum() <= (expected == 0).sum() + 2
        assert (got - expected).float().norm() <= 5e-3 * expected.float().norm()
