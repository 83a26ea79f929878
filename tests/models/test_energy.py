"""The energy-based memory: second derivatives, projection, step sizes, divergence, and what it learns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemon import State
from mnemon.memories.fast_weights import FastWeightState
from mnemon.models.energy import EnergyModel, StepSizes
from mnemon.nets.energy import GatedEnergy
from mnemon.nets.energy_conv import ConvEnergy, ResNetEnergy
from mnemon.nets.energy_pairwise import PairwiseEnergy
from mnemon.nets.energy_reconstruction import ReconstructionEnergy

SHAPE = (1, 8, 8)
NETS = {
    "gated": lambda: GatedEnergy(SHAPE, hidden=7, dynamic_size=3, num_hops=2),
    "resnet": lambda: ResNetEnergy(SHAPE, channels=2, hidden=5, dynamic_size=2, num_hops=2),
    "conv": lambda: ConvEnergy(SHAPE, channels=2, hidden=3, dynamic_size=2, num_hops=2),
    "conv_large": lambda: ConvEnergy(SHAPE, channels=2, hidden=3, dynamic_size=2, num_hops=2, both_halve=True),
    "pairwise": lambda: pairwise(),
    "reconstruction": lambda: reconstruction(),
}


def pairwise():
    """Written already, with fields that begin to saturate."""
    net = PairwiseEnergy(SHAPE)
    with torch.no_grad():
        for parameter in net.memory.parameters():
            parameter.normal_(std=5)
    return net


def reconstruction():
    """Written already, and trained: nothing is 0."""
    net = ReconstructionEnergy(SHAPE, dynamic_size=4, key_size=3, hidden=5, channels=2)
    with torch.no_grad():
        for parameter in (net.memory.weight, net.decoder[2].weight, net.local_weight):
            parameter.normal_(std=0.3)
    return net


def make(name="gated", seed=0, **options):
    torch.manual_seed(seed)
    options = {"write_steps": 2, "read_steps": 2, **options}
    return EnergyModel(NETS[name](), **options).double()


def images(*shape, seed=0):
    return torch.rand(*shape, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_of_training_against_finite_differences(name, recompute):
    """Through writing with the gradient norm and through reading: along a random direction of every parameter."""
    rates = {"write_rate": (0.02, 0.005, 0.05), "read_rate": 0.02}  # smooth: norms of small maps are steep
    model = make(name, recompute=recompute, **rates)
    x, cue = (0.3 + 0.4 * images(2, 2, seed=seed) for seed in (0, 1))  # nothing is clipped, which has kinks

    def loss():
        return model.recall_loss(x, cue)[0].sum()

    loss().backward()
    parameters = list(model.parameters())
    directions = [torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(3)) for p in parameters]
    expected = sum(float((p.grad * d).sum()) for p, d in zip(parameters, directions, strict=True))
    values = []
    with torch.no_grad():
        for size in (1e-7, -2e-7):
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter += size * direction
            values.append(float(loss()))
    assert (values[0] - values[1]) / 2e-7 == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_few_patterns_are_written_as_strongly_as_in_training_of_many():
    """With the reference above their number, two episodes' updates of one step add up; the prior term is 0 there."""
    model = make(write_steps=1, reference_count=6)
    x, start = images(5), model.prior_state().weights
    whole, first, rest = (model.write(part).weights - start for part in (x, x[:2], x[2:]))
    torch.testing.assert_close(whole, first + rest)
    averaged = make(write_steps=1).write(x).weights - start
    torch.testing.assert_close(6 * whole, 5 * averaged)
    light = torch.full((5,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(make(write_steps=1).write(x, weights=light).weights - start, averaged)  # still a mean
    more = images(7)
    torch.testing.assert_close(model.write(more).weights, make(write_steps=1).write(more).weights)


def test_recomputing_trains_the_rest_where_the_first_weights_are_frozen():
    gradients = []
    for recompute in (False, True):
        model = make(recompute=recompute)
        model.net.memory.requires_grad_(False)
        model.recall_loss(images(2, 2), images(2, 2, seed=1))[0].sum().backward()
        gradients.append({key: p.grad for key, p in model.named_parameters() if p.requires_grad})
    for key, expected in gradients[0].items():
        assert gradients[1][key] is not None, key
        torch.testing.assert_close(gradients[1][key], expected, msg=key)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("recompute", [False, True])
def test_a_training_step_waits_for_no_value(name, recompute, monkeypatch):
    model, mask = make(name, recompute=recompute), torch.tensor([[True, True, False], [True, False, True]])

    def refuse(*_):
        raise AssertionError("a value was asked for")

    for name in ("__bool__", "__int__", "__float__", "item", "tolist", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    model.recall_loss(images(2, 3), images(2, 3, seed=1), mask=mask)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", NETS)
def test_gradients_reach_every_parameter(name):
    model = make(name)
    model.recall_loss(images(2, 3), images(2, 3, seed=1))[0].sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", NETS)
def test_reading_descends_by_projected_nesterov(name):
    """Against the three lines of the algorithm, with slopes by finite differences of the energy."""
    model = make(name, read_rate=0.7)
    state, cue = model.write(images(2)).detach(), images(1, seed=1)
    sizes, momenta = model.sizes().tolist(), model.momenta().tolist()
    bumps = 1e-5 * torch.eye(64, dtype=torch.float64).view(64, *SHAPE)
    x, v = cue[0], torch.zeros(SHAPE, dtype=torch.float64)
    with torch.no_grad():
        for k in range(2):
            ahead = torch.clamp(x + momenta[k] * v, 0, 1)
            # the energy is asked beside [0, 1] too, where read never is
            up, down = (model.net.with_memory(state.weights, ahead + sign * bumps) for sign in (1, -1))
            v = momenta[k] * v - sizes[k] * ((up - down) / 2e-5).view(SHAPE)
            x = torch.clamp(x + v, 0, 1)
        torch.testing.assert_close(model.read(state, cue)[0], x, atol=1e-7, rtol=1e-7)


def test_writing_by_hand():
    """One step on one episode of three patterns, one of them twice, with autograd alone."""
    model = make(write_steps=1, write_rate=(0.5, 0.2, 0.1))
    x, counts = images(3), torch.tensor([1.0, 2.0, 0.0])
    start = FastWeightState(model.net.memory_weights().detach() + 0.1)
    found = model.write(x, weights=counts, prior=start)
    weights = start.weights.clone().requires_grad_()
    moved = x[:2].clone().requires_grad_()
    energies = model.net.with_memory(weights, moved)
    (slopes,) = torch.autograd.grad(energies.sum(), moved, create_graph=True)
    norms = slopes.square().sum((1, 2, 3))
    rates = model.rule.rates[:, 0]
    share = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    prior = (weights - model.net.memory_weights().detach()).square().sum()
    objective = rates[0] * (share * energies).sum() + rates[1] * (share * norms).sum() + rates[2] * prior
    (change,) = torch.autograd.grad(objective, weights)
    torch.testing.assert_close(found.weights, start.weights - change)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), rate=st.floats(1e-2, 1e4), steps=st.integers(1, 3))
def test_reading_never_leaves_the_unit_interval(seed, rate, steps):
    model = make(seed=seed, read_rate=rate, read_steps=3)
    with torch.no_grad():
        state = model.write(images(2))
        for read in (model.read(state, images(2, seed=seed), steps=steps), *model.trajectory(state, images(2))):
            assert ((read >= 0) & (read <= 1)).all()


@settings(max_examples=50, deadline=None)
@given(
    first=st.floats(-20, 20),
    logits=st.lists(st.floats(-30, 30), min_size=0, max_size=6),
    below_one=st.booleans(),
)
def test_step_sizes_never_grow(first, logits, below_one):
    steps = StepSizes(len(logits) + 1, 0.5, below_one=below_one)
    with torch.no_grad():
        steps.raw_first.fill_(first)
        steps.logits.copy_(torch.tensor(logits))
        found = steps()
    assert found.shape == (len(logits) + 1,)
    assert (found >= 0).all()
    assert (found.diff() <= 0).all()
    if below_one:
        assert (found <= 1).all()


def test_step_sizes_begin_where_they_are_told():
    assert StepSizes(3, 0.3)().tolist() == pytest.approx([0.3, 0.27, 0.243])
    assert StepSizes(3, 0.9, below_one=True)().tolist() == pytest.approx([0.9, 0.81, 0.729])


def test_a_saved_memory_reads_the_same(tmp_path):
    model = make()
    state = model.write(images(2, 3))
    state.save(tmp_path / "memory")
    loaded = State.load(tmp_path / "memory")
    assert torch.equal(loaded.weights, state.weights)
    torch.testing.assert_close(model.read(loaded, images(2, 3)), model.read(state, images(2, 3)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("stepwise", [True, False])
def test_the_loss_is_the_error_of_all_read_steps_or_of_the_last(stepwise):
    """Against loops over cues and steps, of an episode whose third pattern is not there. EBMM, A.4."""
    model = make(stepwise=stepwise, read_steps=3)
    x, targets, cue = images(2, 3), images(2, 4, seed=1), images(2, 4, seed=2)
    mask = torch.tensor([[True, True, False]] * 2)
    with torch.no_grad():
        loss, read = model.recall_loss(x, cue, targets=targets, mask=mask)
        state = model.write(x[:, :2])
        steps = model.trajectory(state, cue)
    assert loss.shape == (2, 4)
    for found, expected in zip(read, steps, strict=True):
        torch.testing.assert_close(found, expected)
    for episode in range(2):
        for item in range(4):
            errors = [float(((step - targets)[episode, item] ** 2).sum()) for step in steps]
            assert float(loss[episode, item]) == pytest.approx(sum(errors) if stepwise else errors[-1])


def test_an_episode_of_one_pattern():
    model = make()
    state = model.write(images(1))
    assert model.read(state, images(1)).isfinite().all()
    assert model.energy(state, images(4)).shape == (4,)


def test_writing_lowers_the_energy_of_what_is_written():
    model = make(write_rate=(0.05, 1e-6, 1e-6))
    before, after = model.prior_state(), model.write(images(3))
    assert (model.energy(after, images(3)).mean() < model.energy(before, images(3)).mean()).all()


def test_a_divergent_write_is_caught_and_changes_nothing():
    model = make(write_steps=4)
    prior = model.write(images(2)).detach()
    kept = prior.weights.clone()
    with torch.no_grad():
        model.rule.raw_rates.fill_(1e200)
    with pytest.raises(ValueError, match=r"after step \d of 4: the write diverged, and nothing was changed"):
        model.write(images(2), prior=prior)
    assert torch.equal(prior.weights, kept)


def shaken(net):
    """Nothing is 0 or 1 as before training."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return net.double()


def test_the_gated_energy_is_that_of_the_appendix():
    """B.1 item by item: one matrix on (x, state) for the gate, one for the static units, the memory on x alone."""
    net = shaken(GatedEnergy(SHAPE, hidden=7, dynamic_size=3, num_hops=4))
    gate, static = torch.cat((net.by_item.weight, net.by_state.weight), 1).split((7, 4))
    gate_bias, static_bias = net.by_item.bias.split((7, 4))
    with torch.no_grad():
        for image, found in zip(images(3), net(images(3)), strict=True):
            x, state = 2 * image.flatten() - 1, torch.zeros(7, dtype=torch.float64)
            for _ in range(4):
                z = torch.cat((x, state))
                c = torch.tanh(torch.cat((net.memory.weight @ x + net.memory.bias, static @ z + static_bias)))
                u = torch.sigmoid(gate @ z + gate_bias)
                state = u * c + (1 - u) * state
            torch.testing.assert_close(found, net.energy.weight[0] @ state)


def test_the_hops_of_the_residual_energy_are_those_of_the_appendix():
    """B.2 after its encoder, with the gate between candidate and state (the appendix has the candidate twice)."""
    net = shaken(ResNetEnergy(SHAPE, channels=2, hidden=5, dynamic_size=2, num_hops=3))
    hidden, gate = torch.cat((net.by_item.weight, net.by_state.weight), 1).chunk(2)
    hidden_bias, gate_bias = net.by_item.bias.chunk(2)

    def norm(v):
        return (v - v.mean()) / (v.var(correction=0) + 1e-5).sqrt() * net.norm.weight + net.norm.bias

    with torch.no_grad():
        encoded = net.encoding_norm(net.encoding(net.blocks(2 * images(3) - 1).flatten(1)))
        for code, found in zip(encoded, net(images(3)), strict=True):
            x, state = torch.tanh(torch.cat((net.memory(code), net.static(code)))), torch.zeros(5, dtype=torch.float64)
            for _ in range(3):
                z = torch.cat((x, state))
                c, u = norm(torch.tanh(hidden @ z + hidden_bias)), torch.sigmoid(gate @ z + gate_bias)
                state = u * c + (1 - u) * state
            torch.testing.assert_close(found, net.energy.weight[0] @ torch.tanh(net.head(state)))


@pytest.mark.parametrize("both_halve", [False, True])
def test_hops_of_the_convolutional_energy_begin_at_zeros(both_halve):
    """Every hop is that of one convolution of (item, state) with one bias, the first from a state of zeros. B.3."""
    torch.manual_seed(0)
    net = ConvEnergy(SHAPE, channels=2, hidden=3, dynamic_size=2, num_hops=3, both_halve=both_halve).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        x = net.blocks(2 * images(2) - 1)
        state = torch.zeros(2, 3, *x.shape[2:], dtype=x.dtype)
        for _ in range(3):
            candidate = torch.tanh(net.norm(net.by_item(x) + net.by_state(state)))
            gate = torch.sigmoid(net.gate_norm(net.gate_by_item(x) + net.gate_by_state(state)))
            state = gate * candidate + (1 - gate) * state
        expected = net.energy(torch.tanh(net.head(state.flatten(1))))[:, 0]
        torch.testing.assert_close(net(images(2)), expected)


def test_one_memory_for_many_episodes():
    """The batch dimensions of states, episodes and cues broadcast."""
    model = make()
    prior, x = model.write(images(2, 3)), images(3, seed=1)
    both = model.write(x, prior=prior)
    assert both.batch_shape == (2,)
    for i in range(2):
        torch.testing.assert_close(both.weights[i], model.write(x, prior=prior[i]).weights)
        torch.testing.assert_close(model.read(both, x)[i], model.read(both[i], x))


def test_bad_input():
    model = make()
    state = model.write(images(2))
    with pytest.raises(ValueError, match=r"write: expected mask of shape \(3,\) \(one per item\), got \(2,\)"):
        model.write(images(3), mask=torch.tensor([True, False]))
    with pytest.raises(ValueError, match=r"read: expected values in \[0, 1\], got"):
        model.read(state, images(2) + 0.5)
    with pytest.raises(ValueError, match=r"energy: expected values in \[0, 1\]"):
        model.energy(state, images(2) - 0.5)
    with pytest.raises(ValueError, match=r"energy\(state, x\)"):
        model.log_likelihood(state, images(2))
    other = make("conv").write(images(2))
    for call in (model.read, model.energy):
        with pytest.raises(ValueError, match=r"expected a FastWeightState \(\*B, 195\)"):
            call(other, images(2))
    with pytest.raises(ValueError, match="write: prior: expected a FastWeightState"):
        model.write(images(2), prior=other)
    for option in ({"read_steps": 0}, {"write_steps": 0}, {"read_rate": 0.0}):
        with pytest.raises(ValueError, match="expected a"):
            make(**option)


def test_sizes_of_the_papers_memories():
    assert sum(GatedEnergy((1, 8, 16)).memory_layers()) == 8256
    assert sum(ResNetEnergy((1, 28, 28), dynamic_size=16).memory_layers()) == 4096
    assert sum(ResNetEnergy((1, 28, 28), dynamic_size=64).memory_layers()) == 16384
    assert ConvEnergy((3, 32, 32), dynamic_size=3).memory_layers() == [3 * (9 * 64 + 1)] * 2
    with pytest.raises(ValueError, match="dynamic_size: expected fewer than the 8"):
        GatedEnergy(SHAPE, hidden=8, dynamic_size=8)


def test_it_learns_to_recall_random_patterns():
    """Fifty updates of a small net take the error of its cues well below 0.09, the best that is possible without a
    memory: a cue's bit is right with probability 0.9, and patterns are new in every step."""
    torch.manual_seed(0)
    model = EnergyModel(GatedEnergy((1, 1, 16), hidden=64, dynamic_size=16, num_hops=2), write_steps=3, read_steps=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    errors = []
    for _ in range(50):
        x = torch.randint(2, (32, 2, 1, 1, 16)).float()
        cue = torch.where(torch.rand(x.shape) < 0.1, 1 - x, x)
        losses, read = model.recall_loss(x, cue)
        optimizer.zero_grad()
        losses.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        errors.append(float((read[-1].detach() - x).square().mean()))
    assert sum(errors[-20:]) / 20 < 0.065


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NETS)
def test_a_training_step_can_be_captured_as_a_graph(name):
    """Replayed with new patterns, it gives the gradients of a step that is launched kernel by kernel."""
    model = make(name).float().cuda()
    x, cue = (images(2, 3, seed=seed).float().cuda() for seed in (0, 1))

    def step():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        model.recall_loss(x, cue)[0].mean().backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    x.copy_(images(2, 3, seed=2))
    graph.replay()
    replayed = [parameter.grad.clone() for parameter in model.parameters()]
    step()
    for left, parameter in zip(replayed, model.parameters(), strict=True):
        torch.testing.assert_close(left, parameter.grad, rtol=1e-3, atol=1e-4)
