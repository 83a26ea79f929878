"""What must not reach what: frames that are not written the memory, and cues one another."""

import torch


def check_unwritten_frames_stay_out(model, x, others, *, of):
    """Six frames, three of them written: the memory is that of these alone, whatever the others are.

    of: the tensor of a state that is compared
    """
    write_mask = torch.tensor([True, True, False, True, False, False])
    changed = torch.where(write_mask[:, None, None, None], x, others)
    left, right = (model.terms_and_state(some, write_mask=write_mask)[1] for some in (x, changed))
    assert torch.equal(of(left), of(right))
    torch.testing.assert_close(of(left), of(model.write(x[write_mask])))


def check_cues_are_alone(model, state, cues, *, num_samples, generator):
    """Some cues are read as among others; the first is scored as alone, to within what draws differ by."""
    torch.testing.assert_close(model.read(state, cues, steps=3)[2:4], model.read(state, cues[2:4], steps=3))
    with torch.no_grad():
        whole, part = (
            model.log_weights(state, some, num_samples=num_samples, generator=generator()) for some in (cues, cues[:1])
        )
    error = (whole[:, 0].var(0) / (num_samples / 2)).sqrt()
    assert (whole[:, 0].mean() - part[:, 0].mean()).abs() < 4 * error
