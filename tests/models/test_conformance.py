"""One suite for every deep model."""

import dataclasses

import pytest
import torch

from mnemon import (
    CategoricalMemory,
    GaussianMemory,
    KanervaMemory,
    MixtureMemory,
    State,
    TreeMemory,
)
from mnemon.memories.pseudo_inverse import PseudoInverseMemory
from mnemon.memories.records import Written
from mnemon.models import (
    VAE,
    AddressingModel,
    ContextAwareLearner,
    FullStatistician,
    KanervaBlocks,
    KanervaMachine,
    KanervaPlusPlus,
    MatchingModel,
    MemoryVAE,
    NeuralStatistician,
    PseudoInverseModel,
    SoftAttentionModel,
    StochasticRegulariser,
)
from mnemon.models.codec_model import CodecModel
from mnemon.models.energy import EnergyModel
from mnemon.models.hopfield import CopyModel, HopfieldModel, ModernHopfieldModel, SlotMemory
from mnemon.nets.codec import Codec
from mnemon.nets.conditional import ConditionalCodec, embedding_net
from mnemon.nets.contexts import ConditionalContexts, TiedContexts
from mnemon.nets.energy import GatedEnergy
from mnemon.nets.energy_conv import ConvEnergy, ResNetEnergy
from mnemon.nets.energy_pairwise import PairwiseEnergy
from mnemon.nets.energy_reconstruction import ReconstructionEnergy
from mnemon.nets.matching import matching_nets
from mnemon.nets.mlp import mlp
from mnemon.nets.resnet_tsm import tsm_codec
from tests import extending

SHAPE, C = (1, 22, 24), 6


def codec(likelihood="bernoulli", size=C, num_filters=8, **options):
    torch.manual_seed(0)
    made = Codec.convolutional(SHAPE, size, num_filters=num_filters, likelihood=likelihood, **options)
    return made.double().eval()


def addressing(architecture="pyramid", **options):
    torch.manual_seed(0)
    nets = ConditionalCodec.of(SHAPE, C, architecture=architecture, num_filters=8)
    embeddings = [embedding_net(SHAPE, 5, architecture=architecture, num_filters=8) for _ in range(2)]
    return AddressingModel(nets, *embeddings, 5, **options).double().eval()


def soft_attention(architecture="pyramid"):
    torch.manual_seed(0)
    unconditioned = {"conditional_prior": False, "conditional_posterior": False}
    nets = ConditionalCodec.of(SHAPE, C, architecture=architecture, num_filters=8, **unconditioned)
    items = embedding_net(SHAPE, 5, architecture=architecture, num_filters=8)
    return SoftAttentionModel(nets, items, mlp((C, 7, 5))).double().eval()


def matching(architecture="pyramid", **options):
    torch.manual_seed(0)
    nets = {"architecture": architecture, "num_filters": 8}
    codec, values = matching_nets(SHAPE, C, 5, **nets)
    embeddings = [embedding_net(SHAPE, 5, **nets) for _ in range(2)]
    return MatchingModel(codec, embeddings[0], values, embeddings[1], mlp((C, 7, 5)), 5, **options).double().eval()


def shifted_codec(**options):
    torch.manual_seed(0)
    return tsm_codec(SHAPE, C, num_filters=4, hidden=8, **options)


def spatial(**options):
    sizes = {"map_shape": (2, 9, 8), "read_size": 5, "num_filters": 4, "hidden": 8}
    return KanervaPlusPlus(shifted_codec(), **sizes, **options).double().eval()


def blocks():
    return KanervaBlocks(shifted_codec(), map_shape=(2, 9, 8), read_size=3).double().eval()


def shifted_kanerva():
    nets = shifted_codec(head=False, encoding_dim=C)
    return KanervaMachine(nets, KanervaMemory(C, 3, 0.5), encode_together=True).double().eval()


def pseudo_inverse():
    memory = PseudoInverseMemory(C, 3, input_var=0.1)
    return PseudoInverseModel(codec(head=False, encoding_dim=C), memory).double().eval()


def full_statistician(**options):
    nets = codec(head=False, architecture="residual", num_filters=4, encoding_dim=9, size=2 * 3 + 4)
    return FullStatistician(nets, 4, 3, hidden=8, **options).double().eval()


def context_aware(contexts="tied", **options):
    torch.manual_seed(0)
    nets = codec(head=False, architecture="residual", num_filters=4, encoding_dim=9, size=2 * 3 + 2)
    inferred = TiedContexts(9, 2, 3, 2, 8) if contexts == "tied" else ConditionalContexts(9, 2, 3, 2, 8, "mean")
    return ContextAwareLearner(nets, inferred, 2, 3, **options).double().eval()


MODELS = {
    "vae": lambda: VAE(codec()),
    "gaussian": lambda: MemoryVAE(codec("gaussian"), GaussianMemory(C, 3, 0.5), num_steps=5),
    "shift": lambda: MemoryVAE(codec(), GaussianMemory(C, 3, 0.5, shift=True), num_steps=5),
    "categorical": lambda: MemoryVAE(codec(), CategoricalMemory(C, 3, 0.5)),
    "mixture": lambda: MemoryVAE(codec(code_var=0.25), MixtureMemory(C, 2, 0.5, num_clusters=3), num_steps=5),
    "tree": lambda: MemoryVAE(codec("logistic_mixture"), TreeMemory(C, 2, 0.5, num_clusters=2), num_steps=5),
    "kanerva": lambda: MemoryVAE(codec(), KanervaMemory(C, 3, 0.5)),
    "sampled": lambda: MemoryVAE(codec(), MixtureMemory(C, 2, 0.5, num_clusters=3), num_steps=5, sampled_terms=True),
    "online": lambda: MemoryVAE(codec(), GaussianMemory(C, 3, 0.5, shift=True), num_steps=5, online_chunks=2),
    "statistician": lambda: NeuralStatistician(codec(head=False), context_dim=7, hidden=8).double().eval(),
    "kanerva_machine": lambda: (
        KanervaMachine(codec(head=False, encoding_dim=C), KanervaMemory(C, 3, 0.5)).double().eval()
    ),
    "addressing": addressing,
    "addressing_mlp": lambda: addressing("mlp", similarity="cosine"),
    "soft_attention": soft_attention,
    "matching": matching,
    "matching_mlp": lambda: matching("mlp", similarity="inner", num_matching_steps=1),
    "kanerva_pp": spatial,
    "kanerva_pp_dense": lambda: spatial(dense_readout=True),
    "kanerva_pp_blocks": blocks,
    "kanerva_tsm": shifted_kanerva,
    "pseudo_inverse": pseudo_inverse,
    "vae_pyramid": lambda: VAE(codec(architecture="pyramid")),
    "vae_mlp": lambda: VAE(codec(architecture="mlp")),
    "vae_residual": lambda: VAE(codec(architecture="residual")),
    "statistician_full": full_statistician,
    "statistician_attention": lambda: full_statistician(pooling="attention", num_layers=2),
    "statistician_relation": lambda: full_statistician(pooling="relation"),
    "context_aware": context_aware,
    "context_aware_thesis": lambda: context_aware("thesis", constant="any", pooling="relation"),
    "context_aware_mixture": lambda: context_aware(prior_components=2),
    "context_aware_told": lambda: context_aware(supervised=True),
    "centre": lambda: extending.example().CentreModel(codec(), spread=0.3),
}


def energy(net, **options):
    torch.manual_seed(0)
    return EnergyModel(net(SHAPE, **options), write_steps=2, read_steps=2).double().eval()


RECALL_MODELS = {
    "energy": lambda: energy(GatedEnergy, hidden=8, dynamic_size=3, num_hops=2),
    "energy_resnet": lambda: energy(ResNetEnergy, channels=2, hidden=6, dynamic_size=3, num_hops=2),
    "energy_conv": lambda: energy(ConvEnergy, channels=2, hidden=4, dynamic_size=2, num_hops=2),
    "energy_pairwise": lambda: energy(PairwiseEnergy),
    "energy_reconstruction": lambda: energy(ReconstructionEnergy, dynamic_size=4, key_size=3, hidden=5, channels=2),
    "hebb": lambda: HopfieldModel(SHAPE, "hebb", num_sweeps=1),
    "storkey": lambda: HopfieldModel(SHAPE, "storkey", num_sweeps=1),
    "modern_hopfield": lambda: ModernHopfieldModel(SHAPE, beta=0.1),
    "slot_memory": lambda: SlotMemory(SHAPE),
    "copy": lambda: CopyModel(SHAPE),
}
"""Models without a likelihood."""
MATCHING = ("matching", "matching_mlp")
SLOTS = ("addressing", "addressing_mlp", "soft_attention", *MATCHING)
VAES = ("vae", "vae_pyramid", "vae_mlp", "vae_residual")
SPATIAL = ("kanerva_pp", "kanerva_pp_dense")
COMPUTED = (*SPATIAL, "kanerva_pp_blocks", "pseudo_inverse")  # memories without a posterior
CONTEXTS = ("statistician", *(name for name in MODELS if name.startswith(("statistician_", "context_aware"))))
ORDERED = {
    **dict.fromkeys(("kanerva", "kanerva_machine", "kanerva_tsm"), "each write changes the next address"),
    **dict.fromkeys(SPATIAL, "frames are encoded with their neighbours (own tests measure how far the memory moves)"),
    "kanerva_pp_blocks": "blocks are taken in the order of writing (its own tests permute episodes)",
    "pseudo_inverse": "takes no start; its own tests permute episodes",
    **dict.fromkeys(SLOTS, "slots stand in the order of writing; what is scored does not depend on it (see below)"),
    "storkey": "each pattern is written against the field of those before it",
    **dict.fromkeys(("modern_hopfield", "slot_memory", "copy"), "patterns stand in the order of writing"),
}
NO_PRIOR = {
    **dict.fromkeys(set(SLOTS) - set(MATCHING), "a memory of stored items is nothing before the first write"),
    **dict.fromkeys(SPATIAL, "a map is made of frames, and there are none before the first write"),
}
NO_CONTINUATION = {
    **dict.fromkeys((*SPATIAL, "pseudo_inverse"), "the memory is made of all frames at once; a prior is refused"),
    **dict.fromkeys(
        ("statistician_attention", "statistician_relation", "context_aware_thesis"),
        "the pooling needs all items at once; a prior is refused",
    ),
}
JOINTLY_ENCODED = dict.fromkeys(
    (*SPATIAL, "kanerva_tsm"), "terms encode frames together, log_weights one by one: other bounds of the same value"
)
NO_SUBSETS = {**dict.fromkeys(VAES, "nothing is written"), "online": "its chunks write every item"}
OWN_BATCH = {
    **dict.fromkeys(VAES, "its memory says nothing, so cues stay in their own batch"),
    "soft_attention": "a code is decoded with what it finds, in the batch of its image",
}
ALL_DRAWN = {
    *VAES,
    *SLOTS,
    *CONTEXTS,
    "kanerva_machine",
    "kanerva_pp_blocks",
    "pseudo_inverse",
    "centre",
}  # nothing is integrated in closed form


def models(*without):
    return pytest.mark.parametrize("name", [name for name in MODELS if name not in without])


def every(*without):
    """Also the models without a likelihood."""
    names = [name for name in (*MODELS, *RECALL_MODELS) if name not in without]
    return pytest.mark.parametrize("name", names)


def make(name):
    return (MODELS | RECALL_MODELS)[name]()


def images(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, *SHAPE, dtype=torch.float64, generator=generator) < 0.3).double()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def continuing(name, state):
    """Options of a write that starts from a given state, where a model can."""
    return {} if name in NO_CONTINUATION else {"prior": state}


def learning(model):
    """The parameters that learn from the bound. Mixtures of contexts are fitted beside it (tests of their own)."""
    fitted = ("priors.constant.", "priors.varying.")
    return {name: parameter for name, parameter in model.named_parameters() if not name.startswith(fitted)}


def bound_of(terms):
    """Stored items and computed maps have no posterior, so there is no joint bound."""
    return terms.conditional if terms.memory_kl is None else terms.joint


def assert_equal(left: State, right: State, tol=1e-9):
    for name, tensor in left.tensors().items():
        torch.testing.assert_close(tensor, getattr(right, name), atol=tol, rtol=tol)


@models()
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_shapes(name, batch):
    model, x = MODELS[name](), images(*batch, 5)
    state = model.write(x, generator=seeded())
    assert state.batch_shape == batch
    cue = images(*batch, 2, seed=1)
    assert model.read(state, cue).shape == cue.shape
    assert model.read(state, cue, generator=seeded(), steps=2).shape == cue.shape
    assert model.sample(state, 3).shape == (*batch, 3, *SHAPE)
    assert model.log_weights(state, cue, num_samples=4).shape == (4, *batch, 2)
    bound = model.log_likelihood(state, cue, num_samples=4)
    assert bound.value.shape == (*batch, 2)
    assert (bound.kind, bound.num_samples) == ("iwae", 4)
    assert model.log_likelihood(state, cue).kind == "elbo"
    terms = model.terms(x)
    assert terms.reconstruction.shape == terms.code_kl.shape == terms.address_kl.shape == (*batch, 5)
    assert bound_of(terms).shape == terms.conditional.shape == batch
    if name in (*SLOTS, *COMPUTED):
        with pytest.raises(ValueError, match=r"use \.conditional"):
            terms.joint


@every(*VAES)
def test_batch_equals_loop(name):
    model, x = make(name), images(3, 5)
    init = model.write(x, generator=seeded())
    batched = model.write(x, **continuing(name, init))
    for i in range(3):
        assert_equal(batched[i], model.write(x[i], **continuing(name, init[i])))


@every(*ORDERED)
def test_order_does_not_matter(name):
    model, x = make(name), images(5)
    start = model.write(images(5, seed=3), generator=seeded())
    order = torch.tensor([3, 0, 4, 1, 2])
    start = continuing(name, start)
    assert_equal(model.write(x, **start), model.write(x[order], **start))


@every()
def test_masked_item_is_absent_item(name):
    model, x = make(name), images(5)
    start = model.write(images(5, seed=3), generator=seeded())
    mask = torch.tensor([True, True, False, True, False])
    spoiled = torch.where(mask[:, None, None, None], x, torch.nan)
    start = continuing(name, start)
    assert_equal(model.write(spoiled, mask=mask, **start), model.write(x[mask], **start))


@models(*JOINTLY_ENCODED)
def test_log_weights_agree_with_the_elbo(name):
    """The mean log-weight is the conditional bound that `log_likelihood` of the memory and the decoder give."""
    model, x = MODELS[name](), images(4)
    state = model.write(x, generator=seeded())
    with torch.no_grad():
        draws = model.log_weights(state, x, num_samples=400, generator=seeded())
        error = draws.std(0) / 20
        tight = model.log_likelihood(state, x, num_samples=400, generator=seeded())
        assert (tight.value >= draws.mean(0)).all()
        if name in ALL_DRAWN:
            terms = [model.terms(x, generator=seeded(s)) for s in range(50)]
            expected = torch.stack([t.reconstruction - t.code_kl - t.address_kl for t in terms])
        else:
            codes = model.codec.encode(x)
            z = codes.mean + codes.std * torch.randn(200, *codes.mean.shape, dtype=torch.float64)
            reconstruction = torch.stack([model.codec.log_prob(draw, x) for draw in z])
            parts = model.memory.terms(codes, Written(state))
            expected = reconstruction - parts.code_kl - parts.address_kl
    spread = expected.std(0) / len(expected) ** 0.5
    # log_weights integrates the memory out, where the ELBO averages the log: it may only be larger
    assert (draws.mean(0) - expected.mean(0) > -5 * (error + spread)).all()
    if name in ALL_DRAWN:
        assert ((draws.mean(0) - expected.mean(0)).abs() < 5 * (error + spread)).all()


@every()
def test_unobserved_pixels_may_hold_anything(name):
    model, x = make(name), images(4)
    state = model.write(x, generator=seeded())
    observed = torch.arange(SHAPE[-1]) < 12
    left = model.read(state, torch.where(observed, x, torch.nan), observed=observed, steps=3)
    right = model.read(state, torch.where(observed, x, 1.0), observed=observed, steps=3)
    assert left.isfinite().all()
    torch.testing.assert_close(left, right)


@models(*NO_SUBSETS)
def test_writing_a_subset_scores_all(name):
    model, x = MODELS[name](), images(6)
    write_mask = torch.tensor([True] * 4 + [False] * 2)
    terms = model.terms(x, write_mask=write_mask, generator=seeded())
    assert terms.reconstruction.shape == (6,)
    whole = model.terms(x, generator=seeded())
    if terms.memory_kl is None:
        assert not torch.equal(terms.conditional, whole.conditional)
    else:
        assert terms.memory_kl != whole.memory_kl
    mask = torch.tensor([True] * 5 + [False])  # an item that is absent is not written, whatever the subset says
    every = torch.ones(6, dtype=torch.bool)
    left = model.terms(x, mask=mask, write_mask=every, generator=seeded())
    right = model.terms(x, mask=mask, generator=seeded())
    part = "memory_kl" if left.memory_kl is not None else "conditional"
    torch.testing.assert_close(getattr(left, part), getattr(right, part))


@models(*NO_PRIOR)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_memory_before_the_first_write(name, batch):
    model = MODELS[name]()
    state = model.prior_state(batch)
    assert state.batch_shape == batch
    assert all(tensor.dtype == torch.float64 for tensor in state.tensors().values())
    assert type(state) is type(model.write(images(*batch, 5), generator=seeded()))
    assert model.log_likelihood(state, images(*batch, 3), num_samples=2).value.isfinite().all()
    assert model.sample(state, 2).isfinite().all()


@models()
def test_a_generator_makes_everything_repeatable(name):
    model, x = MODELS[name]().train(), images(2, 5)
    if isinstance(model, MemoryVAE):
        model.regulariser = StochasticRegulariser()
    assert torch.equal(*(bound_of(model.terms(x, generator=seeded(3))) for _ in range(2)))
    state = model.write(x, generator=seeded())
    assert torch.equal(*(model.read(state, x, generator=seeded(3)) for _ in range(2)))
    assert torch.equal(*(model.sample(state, 2, sample_pixels=True, generator=seeded(3)) for _ in range(2)))


@models()
def test_pixels_are_drawn_only_when_asked_for(name):
    model, x = MODELS[name](), images(5)
    state = model.write(x, generator=seeded())
    drawn, mean = (model.read(state, x, sample_pixels=p, generator=seeded()) for p in (True, False))
    assert not torch.equal(drawn, mean)
    assert torch.equal(model.read(state, x), model.read(state, x, sample_pixels=False))
    if "Bernoulli" in type(model.codec.likelihood).__name__:
        assert set(drawn.unique().tolist()) <= {0.0, 1.0}
        assert ((mean > 0) & (mean < 1)).all()


@models()
def test_under_autocast_the_memory_stays_in_full_precision(name):
    model, x = MODELS[name]().float().train(), images(2, 5).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = model.write(x, generator=seeded())
        terms = model.terms(x, generator=seeded())
        assert model.log_weights(state, x, num_samples=2).dtype == torch.float32
        assert model.read(state, x, generator=seeded()).isfinite().all()
        assert model.sample(state, 2).isfinite().all()
    assert all(tensor.dtype == torch.float32 for tensor in (*state.tensors().values(), *terms.tensors().values()))
    bound_of(terms).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in learning(model).values())


@models()
def test_gradients_reach_every_parameter(name):
    model, x = MODELS[name]().train(), images(2, 5)
    bound_of(model.terms(x, generator=seeded())).sum().backward()
    fixed = model.codec.code_var is not None
    for key, parameter in learning(model).items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        if not fixed:
            assert parameter.grad.abs().sum() > 0, key


@every()
def test_save_and_load_give_equal_seeded_samples(name, tmp_path):
    model, x = make(name), images(5)
    state = model.write(x, generator=seeded())
    state.save(tmp_path / "m.safetensors")
    loaded = State.load(tmp_path / "m.safetensors")
    assert_equal(state, loaded, tol=0)
    left, right = (model.sample(s, 2, generator=seeded(7)) for s in (state, loaded))
    torch.testing.assert_close(left, right, rtol=0, atol=0)
    left, right = (model.read(s, x, steps=2) for s in (state, loaded))
    torch.testing.assert_close(left, right, rtol=0, atol=0)
    if isinstance(model, CodecModel):
        left, right = (model.log_likelihood(s, x, num_samples=2, generator=seeded(7)).value for s in (state, loaded))
        torch.testing.assert_close(left, right, rtol=0, atol=0)


@every()
def test_messages_on_bad_input(name):
    model, x = make(name), images(5)
    state = model.write(x, generator=seeded())
    with pytest.raises(ValueError, match=r"write: expected x \(\*B, T, 1, 22, 24\), got \(1, 22, 24\); add an item"):
        model.write(x[0])
    if name != "copy":
        with pytest.raises(ValueError, match="resize the images"):
            model.read(state, torch.rand(2, 1, 32, 32))
    with pytest.raises(ValueError, match=r"num_samples|has no likelihood"):
        model.log_likelihood(state, x, num_samples=0)
    with pytest.raises(ValueError, match="all masked"):
        model.write(x, mask=torch.zeros(5, dtype=torch.bool))


@models()
def test_images_masks_and_cues_of_a_wrong_kind(name):
    model, x = MODELS[name](), images(2, 5)
    state = model.write(x, generator=seeded())
    with pytest.raises(ValueError, match="expected x as a Tensor, got ndarray"):
        model.write(x.numpy())
    with pytest.raises(ValueError, match=r"own torch\.float64, got torch\.float32; convert them"):
        model.write(x.float())
    for call in (model.write, model.terms):
        with pytest.raises(ValueError, match=r"expected mask of shape \(2, 5\)"):
            call(x, mask=torch.ones(2, 4, dtype=torch.bool))
        with pytest.raises(ValueError, match="expected mask as a Tensor, got list"):
            call(x, mask=[[True] * 5] * 2)
    with pytest.raises(ValueError, match=r"terms: expected write_mask of shape \(2, 5\)"):
        model.terms(x, write_mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="read: observed: expected a shape that broadcasts"):
        model.read(state, x, observed=torch.ones(SHAPE[2], SHAPE[1], dtype=torch.bool))
    with pytest.raises(ValueError, match="expected finite values"):
        model.read(state, torch.full_like(x, torch.nan))


@every()
def test_nothing_cannot_be_written(name):
    model, x = make(name), images(2, 5)
    for nothing in (x[:, :0], x[:0]):
        with pytest.raises(ValueError, match="expected at least one"):
            model.write(nothing)


@models()
def test_a_mask_may_be_numbers(name):
    model, x = MODELS[name](), images(2, 5)
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    assert_equal(model.write(x, mask=mask, generator=seeded()), model.write(x, mask=mask.bool(), generator=seeded()))
    number, truth = (model.terms(x, mask=some, generator=seeded()).conditional for some in (2 * mask, mask.bool()))
    torch.testing.assert_close(number, truth)


@models()
def test_memories_of_a_wrong_kind(name):
    model, x = MODELS[name](), images(2, 5)
    state = model.write(x, generator=seeded())
    for call in (model.read, model.log_likelihood):
        with pytest.raises(ValueError, match=r"batch shapes that broadcast, got \(2,\) and \(3,\)"):
            call(state, images(3, 5))
    for other in (None, x):
        for ask in (model.sample, lambda state: model.read(state, x), lambda state: model.log_likelihood(state, x)):
            with pytest.raises(ValueError, match=f"expected an? .* got a?n? ?{type(other).__name__}"):
                ask(other)


@models(*OWN_BATCH)
def test_one_memory_for_many_and_many_for_one(name):
    """Cues without the memory's batch are asked of every memory, and a memory without theirs is asked by all."""
    model, x = MODELS[name](), images(2, 5)
    many, cue = model.write(x, generator=seeded()), images(3, seed=1)
    found = model.read(many, cue)
    assert found.shape == (2, 3, *SHAPE)
    for at in range(2):
        torch.testing.assert_close(found[at], model.read(many[at], cue))
        torch.testing.assert_close(model.read(many[at], cue.expand(4, *cue.shape))[1], model.read(many[at], cue))
    assert model.log_likelihood(many, cue).value.shape == (2, 3)


@pytest.mark.parametrize("name", RECALL_MODELS)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_shapes_without_a_likelihood(name, batch):
    model, x = make(name), images(*batch, 5)
    state = model.write(x, generator=seeded())
    assert state.batch_shape == batch
    cue = images(*batch, 2, seed=1)
    assert model.read(state, cue).shape == model.read(state, cue, steps=2).shape == cue.shape
    assert model.sample(state, 3, generator=seeded()).shape == (*batch, 3, *SHAPE)
    for call in (model.log_weights, model.log_likelihood):
        with pytest.raises(ValueError, match="has no likelihood"):
            call(state, cue)
    with pytest.raises(ValueError, match="has no likelihood"):
        model.terms(x)
    for values in (x + 1, -x):
        with pytest.raises(ValueError, match=r"write: expected values in \[0, 1\]"):
            model.write(values)


@pytest.mark.parametrize("name", RECALL_MODELS)
def test_writing_on_equals_writing_at_once_or_moves_the_memory(name):
    """Rules that add up give the same memory in two writes; steps of a gradient go on from the weights they find."""
    model, x = make(name), images(4)
    first = model.write(x[:2], generator=seeded())
    both = model.write(x[2:], prior=first, generator=seeded())
    if name.startswith("energy"):
        assert not torch.equal(both.weights, model.write(x[2:]).weights)
    else:
        assert_equal(both, model.write(x, generator=seeded()))


def test_clusters_are_chosen_when_writing():
    model = MODELS["mixture"]()
    state = model.write(images(9), num_clusters=7, generator=seeded())
    assert state.R.shape[-3] == 7
    assert model.read(state, images(2)).shape == (2, *SHAPE)


def test_memory_and_codec_must_agree_on_the_code_size():
    with pytest.raises(ValueError, match="codes of size 6, got code_dim=5"):
        MemoryVAE(codec(), GaussianMemory(5, 2))


def test_the_regulariser_moves_codes_in_training_only():
    model = MODELS["gaussian"]()
    model.regulariser = StochasticRegulariser(gamma=0.0, epsilon=0.0, delta=0.0)  # all the way to the memory
    x = images(5)
    assert (
        model.eval().terms(x, generator=seeded()).code_kl.sum()
        > model.train().terms(x, generator=seeded()).code_kl.sum()
    )
    assert dataclasses.asdict(StochasticRegulariser())["gamma"] == 0.5


def test_training_learns():
    """A few steps on one episode raise its bound."""
    torch.manual_seed(0)
    model = MODELS["mixture"]().train()
    x = images(2, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    values = []
    for _ in range(30):
        loss = -model.terms(x).per_frame.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(-loss.item())
    assert values[-1] > values[0] + 50


@models()
def test_masked_images_reach_neither_bound_nor_gradient(name):
    model, x = MODELS[name]().train(), images(2, 5)
    mask = torch.tensor([[True] * 5, [True, True, True, True, False]])
    spoiled = torch.where(mask[..., None, None, None], x, torch.nan)
    joint = bound_of(model.terms(spoiled, mask=mask, generator=seeded()))
    assert joint.isfinite().all()
    joint.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in learning(model).values())
