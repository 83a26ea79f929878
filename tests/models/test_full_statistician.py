import pytest
import torch
from torch.distributions import Normal, kl_divergence

from mnemon.models import FullStatistician, NeuralStatistician
from mnemon.models.statistician import moments
from tests.models.test_conformance import codec, full_statistician, images, seeded


def test_layers_are_drawn_from_the_context_down():
    """The terms again, by hand, with the same noise."""
    model, x = full_statistician(), images(4)
    terms = model.terms(x, generator=seeded(2))
    generator = seeded(2)
    state, encodings = model.write(x), model.codec.encodings(x)
    c = state.mean + state.std * torch.randn(4, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(terms.memory_kl, kl_divergence(Normal(state.mean, state.std), Normal(0.0, 1.0)).sum())
    c = c.expand(4, 4)
    above, kl, drawn = c, 0.0, []
    for prior, posterior in zip(model.priors, model.posteriors, strict=True):
        p, q = Normal(*moments(prior(above))), Normal(*moments(posterior(torch.cat((encodings, above), -1))))
        z = q.mean + q.stddev * torch.randn(4, 3, dtype=torch.float64, generator=generator)
        kl = kl + kl_divergence(q, p).sum(-1)
        above = torch.cat((c, z), -1)
        drawn.append(z)
    torch.testing.assert_close(terms.code_kl, kl)
    torch.testing.assert_close(terms.reconstruction, model.codec.log_prob(torch.cat((*drawn, c), -1), x))


def test_the_context_and_every_layer_reach_the_decoder():
    model = full_statistician()
    code = model._draw_prior(torch.zeros(1, 4, dtype=torch.float64), seeded()).detach().requires_grad_()
    model.codec.decode(code).square().sum().backward()
    assert (code.grad.abs() > 0).all()


@pytest.mark.parametrize("make", [full_statistician, lambda: NeuralStatistician(codec(head=False), 4).double().eval()])
def test_classes_are_scored_by_the_kl_of_contexts(make):
    model = make()
    support, queries = images(2, 3, 4), images(2, 5, seed=1)
    classes, alone = model.write(support), model.write(queries[:, :, None])
    for scorer, swap in (("context_kl", False), ("context_kl_reversed", True)):
        scores = model.class_log_scores(support, queries, scorer=scorer)
        assert scores.shape == (2, 5, 3)
        for b, q, w in ((0, 0, 0), (1, 4, 2)):
            pair = [Normal(classes.mean[b, w], classes.std[b, w]), Normal(alone.mean[b, q], alone.std[b, q])]
            expected = -kl_divergence(*(reversed(pair) if swap else pair)).sum()
            torch.testing.assert_close(scores[b, q, w], expected)
    with pytest.raises(
        ValueError, match="expected one of context_kl, context_kl_reversed, context_ratio, got 'posterior'"
    ):
        model.class_log_scores(support, queries, scorer="posterior")


def test_a_context_that_counts_its_items():
    """The same item twice has the same mean, and only a net that is given their number can tell."""
    x = images(2, seed=1)
    for counts in (False, True):
        model = full_statistician(count_items=counts)
        once, twice = model.write(x), model.write(torch.cat((x, x)))
        torch.testing.assert_close(once.pooled, twice.pooled)
        assert torch.allclose(once.mean, twice.mean) != counts
        rest = model.write(x[1:], prior=model.write(x[:1]))
        torch.testing.assert_close(rest.mean, once.mean)


def test_writing_in_two_parts_is_writing_at_once():
    model, x = full_statistician(), images(6)
    torch.testing.assert_close(model.write(x[2:], prior=model.write(x[:2])).mean, model.write(x).mean)


def test_bad_input():
    with pytest.raises(ValueError, match=r"code_dim = num_layers x layer_dim \+ context_dim = 10, got 6"):
        FullStatistician(codec(head=False), 4, 3)
    model, x = full_statistician(), images(3)
    state = model.write(x)
    other = state.replace(mean=state.mean[:2], std=state.std[:2])
    for ask in (model.sample, lambda state: model.read(state, x), lambda state: model.log_likelihood(state, x)):
        with pytest.raises(ValueError, match=r"expected a ContextState with mean \(\*B, 4\), got \(2,\)"):
            ask(other)
    model = full_statistician(pooling="relation")
    with pytest.raises(ValueError, match="RelationPooling needs all items at once"):
        model.write(images(3), prior=model.prior_state())
