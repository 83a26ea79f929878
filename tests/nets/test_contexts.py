import torch

from mnemon.nets.contexts import ResolvedContexts, TiedContexts


def test_items_are_combined_by_bayes_rule():
    """Against a joint Gaussian of c and what the items point to, conditioned by matrix algebra."""
    torch.manual_seed(0)
    nets = TiedContexts(3, 2, 1, 1, 4).double()
    encodings = torch.randn(5, 3, dtype=torch.float64)
    evidence = nets.statistic(encodings)
    found = nets.constant(evidence.mean(0), torch.tensor(5.0, dtype=torch.float64))
    precision, pointed = evidence.chunk(2, -1)
    for k in range(2):
        noise = 1 / precision[:, k]
        seen = pointed[:, k] * noise
        covariance = torch.ones(5, 5, dtype=torch.float64) + noise.diag()
        gain = torch.linalg.solve(covariance, torch.ones(5, dtype=torch.float64))
        torch.testing.assert_close(found.mean[k, 0], gain @ seen)
        torch.testing.assert_close(found.std[k, 0] ** 2, 1 - gain.sum())


def test_a_set_of_one_item_says_what_the_item_says():
    torch.manual_seed(0)
    nets = TiedContexts(3, 2, 4, 1, 4).double()
    encodings = torch.randn(1, 3, dtype=torch.float64)
    shared, chosen = torch.zeros(2, 4).double(), torch.zeros(2).double()
    alone = nets.varying(encodings, shared, chosen)
    pooled = nets.constant(nets.statistic(encodings).mean(0), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(alone.mean[0], pooled.mean)
    torch.testing.assert_close(alone.std[0], pooled.std)


def test_what_an_item_leaves_open_is_settled_by_the_constant_context():
    """At first a resolved context is a tied one; then what it says of a varying context depends on the constant one,
    and what it says of constant contexts does not."""
    torch.manual_seed(0)
    nets = ResolvedContexts(3, 2, 4, 1, 4).double()
    encodings = torch.randn(6, 3, dtype=torch.float64)
    chosen = torch.tensor([1.0, 0.0]).double()
    shared = torch.randn(2, 2, 4, dtype=torch.float64) * chosen[:, None]
    tied = TiedContexts.varying(nets, encodings, shared, chosen)
    fresh = nets.varying(encodings, shared, chosen.expand(2, 2))
    torch.testing.assert_close(fresh.mean, tied.mean.expand(2, 6, 2, 4))
    pooled = nets.statistic(encodings).mean(0)
    count = torch.tensor(6.0, dtype=torch.float64)
    before = nets.constant(pooled, count).mean
    torch.nn.init.normal_(nets.correction.out[-1].weight)
    told = nets.varying(encodings, shared, chosen.expand(2, 2))
    assert (told.mean[0] - told.mean[1]).abs().amax() > 0.01
    torch.testing.assert_close(nets.constant(nets.statistic(encodings).mean(0), count).mean, before)
