import dataclasses
import math

import pytest
import torch

from mnemon.core.episode import Roles
from mnemon.core.patterns import constant_patterns
from mnemon.models.agreement import agreements, best_agreement
from mnemon.models.context_aware import FIT_WEIGHT, OWN_ESTIMATORS, ContextAwareLearner
from mnemon.models.context_latents import draw_codes, infer_latents
from mnemon.nets.context_mixture import SPEED
from mnemon.nets.contexts import TiedContexts
from mnemon.objectives import Estimator
from mnemon.registry import build_model
from mnemon.training.config import ModelConfig
from tests.models.test_conformance import assert_equal, codec, context_aware, images, seeded

FORMS = pytest.mark.parametrize("form", ["tied", "thesis"])


def told(model, number, at):
    return model.patterns[at].bool().expand(number, -1)


def test_patterns():
    assert constant_patterns(3, "one").int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert len({tuple(row) for row in constant_patterns(3, "any").tolist()}) == 8


@FORMS
def test_summing_out_is_the_mean_over_known_patterns(form):
    """The enumerated bound against one pass for every pattern, with the same noise, weighted by q(a | X)."""
    model, x = context_aware(form, constant="any"), images(2, 4)
    whole, state = model.terms_and_state(x, generator=seeded(1))
    expected = -(state.log_choice.exp() * (state.log_choice + math.log(4))).sum(-1)
    for at in range(4):
        terms, _ = model.terms_and_state(x, generator=seeded(1), constant=told(model, 2, at))
        assert (terms.choice_kl == 0).all()
        expected = expected + state.log_choice[:, at].exp() * terms.joint
    torch.testing.assert_close(whole.joint, expected)


@FORMS
def test_hard_draws_have_the_enumerated_bound_as_their_mean(form):
    model, x = context_aware(form), images(3)
    with torch.no_grad():
        many = x.expand(4000, *x.shape)
        drawn = model.terms_and_state(many, generator=seeded(1), estimator=Estimator("gumbel", 1, 0.5))[0].joint
        exact = model.terms_and_state(many, generator=seeded(2))[0].joint
    error = (drawn.var() / 4000 + exact.var() / 4000).sqrt()
    assert abs(drawn.mean() - exact.mean()) < 5 * error


def test_every_estimator_reaches_the_net_of_the_choice():
    for kind in ("enumerate", "posterior", "gumbel", "concrete"):
        model = context_aware().train()
        model.surrogate(images(2, 4), Estimator(kind), generator=seeded()).terms.joint.sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.choice_after.parameters()), kind


def test_the_posterior_choice_is_the_best_one():
    """With q(a) proportional to exp(bound under a), the bound is the log of their mean."""
    model, x = context_aware().train(), images(2, 4)
    found = model.surrogate(x, Estimator("posterior"), generator=seeded(1)).terms.joint
    each = [model.terms_and_state(x, generator=seeded(1), constant=told(model, 2, at))[0].joint for at in range(2)]
    torch.testing.assert_close(found, torch.stack(each).logsumexp(0) - math.log(2))
    assert (found >= model.terms(x, generator=seeded(1)).joint).all()


def test_a_held_choice_is_the_nets_and_teaches_it_nothing():
    model, x = context_aware().train(), images(2, 4)
    held = model.surrogate(x, Estimator("held"), generator=seeded(1)).terms.joint
    torch.testing.assert_close(held, model.surrogate(x, Estimator("enumerate"), generator=seeded(1)).terms.joint)
    held.sum().backward()
    nets = (model.choice_before, model.choice_after)
    assert all(p.grad is None or (p.grad == 0).all() for net in nets for p in net.parameters())
    assert all(p.grad.abs().sum() > 0 for p in model.contexts.to_evidence.parameters())


def test_what_the_choice_sees_does_not_change_with_the_encoder():
    model, x = context_aware(), images(2, 4)
    before = model.write(x)
    with torch.no_grad():
        for parameter in model.codec.encoder.parameters():
            parameter.mul_(1.5)
    after = model.write(x)
    torch.testing.assert_close(after.log_choice, before.log_choice)
    assert (after.mean != before.mean).any()


@FORMS
@pytest.mark.parametrize("supervised", [True, False])
def test_without_codes_contexts_say_everything(form, supervised):
    """z is 0 and costs nothing; its nets and what the decoder makes of it have no gradient. Evaluation has codes."""
    model, x = context_aware(form, supervised=supervised).train(), images(2, 4)
    roles = Roles(None, None, told(model, 2, 0))
    kind, taken = "enumerate" if supervised else "posterior", []
    decode = model.codec.decode
    model.codec.decode = lambda code: taken.append(code) or decode(code)
    terms = model.surrogate(x, Estimator(kind, codes=False), roles=roles, generator=seeded(1)).terms
    assert (terms.code_kl == 0).all()
    assert (terms.address_kl > 0).all()
    assert (taken[0][..., -model.contexts.code_dim :] == 0).all()
    assert (taken[0][..., :3] != 0).any()
    terms.joint.sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in model.contexts.to_code.parameters())
    model.eval()
    assert (model.surrogate(x, Estimator(kind, codes=False), roles=roles).terms.code_kl > 0).all()


def test_constant_contexts_are_shared_and_varying_ones_are_not():
    model = context_aware()
    taken = []
    model.codec.decode = lambda code: taken.append(code) or torch.zeros(*code.shape[:-1], 1, 22, 24).double()
    state = model.prior_state((5,))
    model.sample_sets(state, 3, constant=torch.tensor([True, False]).expand(5, 2), generator=seeded())
    contexts = taken[0][..., :6].unflatten(-1, (2, 3))
    assert (contexts[:, :, 0] == contexts[:, :1, 0]).all()
    assert (contexts[:, 0, 1] != contexts[:, 1, 1]).all()
    assert (contexts[0, :, 0] != contexts[1, :, 0]).all()


def test_combining_takes_each_context_from_the_set_in_which_it_is_constant():
    model = context_aware()
    first, second = model.write(images(2, 4)), model.write(images(2, 4, seed=1))
    mixed, together = model.combine([first, second], [told(model, 2, 0), told(model, 2, 1)])
    assert together.all()
    torch.testing.assert_close(mixed.mean, torch.stack((first.mean[:, 0], second.mean[:, 1]), 1))
    torch.testing.assert_close(mixed.std, torch.stack((first.std[:, 0], second.std[:, 1]), 1))
    with pytest.raises(ValueError, match="a pattern for every state, got 1 for 2"):
        model.combine([first, second], [told(model, 2, 0)])


def test_writing_in_two_parts_is_writing_at_once():
    model, x = context_aware(), images(6)
    assert_equal(model.write(x[2:], prior=model.write(x[:2])), model.write(x))


def test_a_told_model_uses_what_episodes_tell_and_an_untold_one_only_compares():
    x, known = images(2, 4), torch.tensor([[True, False], [False, True]])
    taught = context_aware(supervised=True)
    found = taught.surrogate(x, Estimator("enumerate"), roles=Roles(constant=known), generator=seeded())
    torch.testing.assert_close(
        found.terms.joint, taught.terms_and_state(x, constant=known, generator=seeded())[0].joint
    )
    with pytest.raises(ValueError, match=r"data\.episodes=factors"):
        taught.surrogate(x, Estimator("enumerate"))
    free = context_aware()
    values = [
        free.surrogate(x, Estimator("enumerate"), roles=roles, generator=seeded()).terms.joint
        for roles in (Roles(constant=known), Roles())
    ]
    assert torch.equal(*values)


def test_agreement_does_not_depend_on_the_order_of_contexts():
    known = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]).bool()
    assert best_agreement(known[:, [2, 0, 1]].float(), known) == 1
    assert agreements(known.float(), known).tolist().count(1.0) == 1
    half = torch.tensor([[1, 0], [1, 0], [0, 1], [1, 0]]).bool()
    assert best_agreement(half.float(), half[[0, 2, 2, 3]]) == 0.75


@pytest.mark.parametrize("kind", OWN_ESTIMATORS)
def test_a_mixture_learns_beside_the_bound_and_changes_nothing_of_it(kind):
    x = images(2, 4)
    plain, mixed = context_aware().train(), context_aware(prior_components=3).train()
    mixed.load_state_dict(plain.state_dict(), strict=False)
    before, found = (model.surrogate(x, Estimator(kind), generator=seeded(1)) for model in (plain, mixed))
    torch.testing.assert_close(found.terms.joint, before.terms.joint)
    assert before.extra is None
    assert found.extra.shape == (2,)
    found.extra.sum().backward()
    learning = {name for name, p in mixed.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    parameters = ("raw_means", "raw_log_stds", "raw_logits")
    assert learning == {f"priors.{which}.{name}" for which in ("constant", "varying") for name in parameters}


def test_one_mixture_is_fitted_to_constant_contexts_and_another_to_varying_ones_item_by_item():
    """Against a loop over sets, contexts and items, with a known a."""
    model, x = context_aware(prior_components=3, supervised=True).train(), images(3, 4)
    constant = torch.tensor([[True, False], [False, True], [True, False]])
    found = model.surrogate(x, Estimator("enumerate"), roles=Roles(constant=constant), generator=seeded(1)).extra
    state, encodings = model.write(x, constant=constant), model.codec.encodings(x)
    nothing = torch.zeros_like(state.mean)
    items = model.contexts.varying(encodings, nothing, constant)
    for b in range(3):
        expected = 0.0
        for k in range(2):
            whole = [state.constant[b]] if constant[b, k] else [items[b, t] for t in range(4)]
            prior = model.priors.constant if constant[b, k] else model.priors.varying
            values = [prior.expected_log_prob(q)[k] for q in whole]
            expected = expected + sum(values) / len(values)
        torch.testing.assert_close(found[b], FIT_WEIGHT * expected)


def at_one_place(mixture, value):
    """What is drawn from the mixture is then known."""
    with torch.no_grad():
        mixture.raw_means.fill_(value / SPEED)
        mixture.raw_log_stds.fill_(-12.0 / SPEED)


def test_likelihood_without_a_memory_is_under_the_mixture():
    """Of constant contexts, whichever is drawn as such."""
    model, x = context_aware(prior_components=2), images(1, 1)
    at_one_place(model.priors.constant, 3.0)
    with torch.no_grad():
        state = model.prior_state((1,))
        found = infer_latents(
            model.contexts, model.codec.encodings(x), state.constant, told(model, 1, 0), seeded(), priors=model.priors
        )
    constant = found.code[0, 0, : model.context_dim]
    torch.testing.assert_close(constant, torch.full_like(constant, 3.0), atol=1e-3, rtol=0)


def test_draws_and_evaluation_are_under_the_mixture():
    model, x = context_aware(prior_components=2), images(2, 4)
    at_one_place(model.priors.constant, 3.0)
    at_one_place(model.priors.varying, 2.0)
    size = model.num_contexts * model.context_dim
    fresh = model._draw_codes(model.prior_state((2,)), told(model, 2, 0), 5, seeded())[..., :size].unflatten(
        -1, (2, -1)
    )
    for k, place in enumerate((3.0, 2.0)):
        torch.testing.assert_close(fresh[:, :, k], torch.full_like(fresh[:, :, k], place), atol=1e-3, rtol=0)
    state = model.write(x)
    written = model._draw_codes(state, told(model, 2, 0), 5, seeded(), at_mean=True)[..., :size].unflatten(-1, (2, -1))
    torch.testing.assert_close(written[:, :, 0], state.mean[:, None, 0].expand_as(written[:, :, 0]))
    torch.testing.assert_close(written[:, :, 1], torch.full_like(written[:, :, 1], 2.0), atol=1e-3, rtol=0)
    mixed, together = model.combine([state, state], [told(model, 2, 0), told(model, 2, 1)])
    torch.testing.assert_close(
        model._draw_codes(mixed, together, 1, seeded(), at_mean=True)[:, 0, :size], state.mean.flatten(1)
    )
    partly, _ = model.combine([state, model.prior_state((2,))], [told(model, 2, 0), told(model, 2, 1)])
    drawn = model._draw_codes(partly, together, 1, seeded())[:, 0, model.context_dim : size]
    torch.testing.assert_close(drawn, torch.full_like(drawn, 3.0), atol=1e-3, rtol=0)  # of the second nothing is known
    torch.testing.assert_close(model.write(x, prior=mixed).pooled, state.pooled)  # a combined state holds no items
    terms = model.terms_and_state(x, generator=seeded(1), constant=told(model, 2, 0))[0]
    torch.testing.assert_close(terms.memory_kl, model.priors.constant.kl(state.constant)[:, 0])
    encodings = model.codec.encodings(x)
    items = model.contexts.varying(encodings, torch.zeros_like(state.mean), told(model, 2, 0))
    torch.testing.assert_close(terms.address_kl, model.priors.varying.kl(items)[..., 1])


def test_bad_input():
    with pytest.raises(ValueError, match="prior_components: expected tied contexts"):
        context_aware("thesis", prior_components=2)
    model, x = context_aware(), images(4)
    with pytest.raises(ValueError, match="at least 2 items, got 1"):
        model.write(x[:1])
    with pytest.raises(ValueError, match="at least 2 items, got 1"):
        model.terms(x[:1])
    assert model.write(x[:1], constant=torch.tensor([True, False])).count == 1
    with pytest.raises(ValueError, match=r"constant \(\*B, 2\), one entry for each context, got \(3,\)"):
        model.write(x, constant=torch.tensor([True, False, False]))
    with pytest.raises(ValueError, match=r"labels of a among \[\[1, 0\], \[0, 1\]\]"):
        model.write(x, constant=torch.tensor([True, True]))
    with pytest.raises(ValueError, match="at least 2, got 1; with one context there is nothing to tell apart"):
        ContextAwareLearner(codec(head=False), TiedContexts(12, 1, 3, 3, 8), 1, 3)
    with pytest.raises(ValueError, match="prior: expected a ContextsState"):
        model.write(x, prior=context_aware().prior_state().replace(mean=torch.zeros(3, 3)))


def test_one_item_is_left_by_a_mask_or_a_weight():
    model, x = context_aware(), images(2, 4)
    mask = torch.tensor([[True, True, True, True], [False, True, False, False]])
    for call in (lambda: model.write(x, mask=mask), lambda: model.write(x, weights=3.0 * mask)):
        with pytest.raises(ValueError, match="write: expected a data set of at least 2 items, got 1"):
            call()
    with pytest.raises(ValueError, match="terms: expected a data set of at least 2 items, got 1"):
        model.terms(x, mask=mask)
    assert (model.write(x, mask=mask, constant=torch.tensor([True, False])).count == torch.tensor([4, 1])).all()
    with pytest.raises(ValueError, match="expected at least one item, got T = 0"):
        model.write(x[:, :0])
    whole = model.write(x)
    assert_equal(model.write(x[:, 3:], prior=model.write(x[:, :3])), whole)  # one more item makes four


@FORMS
def test_one_pattern_stands_for_all_sets(form):
    model, x = context_aware(form, supervised=True), images(2, 4)
    one = torch.tensor([True, False])
    every, state = one.expand(2, 2), model.write(x)
    for constant in (one, one.long(), one.double()):
        assert_equal(model.write(x, constant=constant), model.write(x, constant=every))
        left, right = (
            model.terms_and_state(x, constant=some, generator=seeded())[0].conditional for some in (constant, every)
        )
        torch.testing.assert_close(left, right)
        left, right = (model.sample_sets(state, 3, constant=some, generator=seeded()) for some in (constant, every))
        torch.testing.assert_close(left, right)
    mixed, together = model.combine([state, state], [one, ~one])
    assert together.all()
    assert together.shape == (2, 2)
    assert_equal(mixed, model.combine([state, state], [every, ~every])[0])


def test_settled_sets_draw_what_varies_like_what_is_constant():
    """Both mixtures shrunk to points: contexts of new items are one or the other."""
    model = context_aware("tied", prior_components=2)
    for at, mixture in enumerate((model.priors.constant, model.priors.varying)):
        mixture.raw_means.data.fill_((at + 1) / SPEED)
        mixture.raw_log_stds.data.fill_(-20 / SPEED)
    chosen, q = torch.tensor([[True, False]]), model.prior_state((1,)).constant
    for settled, expected in ((True, 1.0), (False, 2.0)):
        codes = draw_codes(model.contexts, q, chosen, 5, seeded(), settled=settled, priors=model.priors)
        contexts = codes[..., : 2 * model.context_dim].unflatten(-1, (2, -1))
        torch.testing.assert_close(contexts[..., 0, :], torch.ones_like(contexts[..., 0, :]))
        torch.testing.assert_close(contexts[..., 1, :], torch.full_like(contexts[..., 1, :], expected))
    plain = context_aware("tied")
    state = plain.write(images(2, 4))
    draws = [plain.sample_sets(state, 3, settled=settled, generator=seeded()) for settled in (True, False)]
    torch.testing.assert_close(*draws)


def test_patterns_and_states_that_do_not_fit():
    model, x = context_aware(), images(2, 4)
    state, one = model.write(x), torch.tensor([True, False])
    asks = {
        "write": lambda constant: model.write(x, constant=constant),
        "terms": lambda constant: model.terms_and_state(x, constant=constant),
        "sample_sets": lambda constant: model.sample_sets(state, 3, constant=constant),
        "combine": lambda constant: model.combine([state, state], [one, constant]),
    }
    for name, ask in asks.items():
        with pytest.raises(ValueError, match=rf"{name}: expected constant as a Tensor, got list"):
            ask([True, False])
        with pytest.raises(ValueError, match=rf"{name}: expected constant \(\*B, 2\), one entry for each context"):
            ask(torch.ones(2, 3))
        with pytest.raises(ValueError, match=rf"{name}: constant: expected a shape that broadcasts to \(2, 2\)"):
            ask(one.expand(3, 2))
        with pytest.raises(ValueError, match=rf"{name}: expected constant to be 1 or True"):
            ask(torch.tensor([0.5, 0.5]))
    other = state.replace(mean=state.mean[..., :2], std=state.std[..., :2])
    for ask in (
        lambda: model.read(other, x),
        lambda: model.log_likelihood(other, x),
        lambda: model.sample_sets(other, 2, constant=one),
        lambda: model.combine([state, other], [one, ~one]),
    ):
        with pytest.raises(ValueError, match=r"expected a ContextsState with mean \(\*B, 2, 3\), got \(2, 2, 2\)"):
            ask()


def test_a_pooling_that_nothing_would_use_is_refused():
    told = ModelConfig(kind="context-aware", image_shape=(1, 22, 22), supervised=True, pooling="attention", hidden=8)
    with pytest.raises(ValueError, match=r"model\.pooling: tied contexts add up what items say"):
        build_model(told)
    assert not build_model(dataclasses.replace(told, contexts="thesis")).contexts.pooling.additive
    assert not build_model(dataclasses.replace(told, supervised=False)).choice_pooling.additive
