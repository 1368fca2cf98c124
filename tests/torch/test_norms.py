"""Updates that take norms: clipping against torch.nn.utils.clip_grad_norm_ with torch.optim, and LARS and LAMB, which torch
has not, against the equations of their papers (You et al. 2017, 2020) on torch's tensors in double."""
import numpy
import torch

import opinion
from harness import check, test

STEPS = 100
SHAPES = [(40, 30), (30, ), (7, 5, 3, 3), (1, ), (11, 1)]
BOUND = 2e-5  # of the largest value


def train(rule, numbers, step, dtype):
    """step(count, tensors) makes a step of its own with the gradients of the tensors."""
    random = numpy.random.default_rng(7)
    values = [random.uniform(-1, 1, shape).astype(numpy.float32) for shape in SHAPES]
    slots = [[numpy.zeros_like(value), numpy.zeros_like(value)] for value in values]
    theirs = [torch.tensor(value, dtype=dtype, requires_grad=True) for value in values]
    step = step(theirs)
    for count in range(1, STEPS + 1):
        size = random.choice([0.001, 0.1, 3])  # some are clipped, some are not
        gradients = [(size * random.normal(0, 1, shape)).astype(numpy.float32) for shape in SHAPES]
        opinion.update_in_two_phases(rule, numbers, count, values, slots, gradients)
        for tensor, gradient in zip(theirs, gradients):
            tensor.grad = torch.tensor(gradient, dtype=dtype)
        step(count)
        for i, (value, tensor) in enumerate(zip(values, theirs)):
            wanted = tensor.detach().numpy()
            worst = abs(value - wanted).max() / max(1, abs(wanted).max())
            check(worst <= BOUND, f"{rule}, variable {i}: differs by {worst:.2g} after step {count}, wanted {BOUND}")


def clipped(optimizer, clip):
    def make(tensors):
        made = optimizer(tensors)

        def step(count):
            torch.nn.utils.clip_grad_norm_(tensors, clip)
            made.step()

        return step

    return make


@test
def clipping_agrees(case):
    """Norms are about 0.045, 4.5 and 130."""
    for clip in (0.01, 1, 1000):
        train("sgd", (0.01, 0.01, 0, 0, 0, 0, clip, 0), clipped(lambda p: torch.optim.SGD(p, 0.01, weight_decay=0.01), clip),
              torch.float32)
        train("momentum", (0.01, 0, 0.9, 0, 0, 0, clip, 0),
              clipped(lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), clip), torch.float32)
        train("adam", (0.01, 0.01, 0, 0.9, 0.99, 1e-8, clip, 0),
              clipped(lambda p: torch.optim.Adam(p, 0.01, (0.9, 0.99), 1e-8, 0.01), clip), torch.float32)


@test
def lars_is_what_its_paper_says(case):
    """Algorithm 1, with the exemption of biases and norm layers that is usual, and clipping before it."""
    rate, decay, momentum, trust = (float(numpy.float32(x)) for x in (0.5, 0.01, 0.9, 0.02))
    for clip in (0, 1):

        def make(tensors):
            velocities = [torch.zeros_like(tensor) for tensor in tensors]

            @torch.no_grad()
            def step(count):
                if clip:
                    torch.nn.utils.clip_grad_norm_(tensors, clip)
                for w, v in zip(tensors, velocities):
                    local, own_decay = 1, 0
                    if w.dim() > 1:
                        own_decay = decay
                        local = trust * w.norm() / (w.grad.norm() + decay * w.norm())
                    v.mul_(momentum).add_(rate * local * (w.grad + own_decay * w))
                    w.sub_(v)

            return step

        train("lars", (rate, decay, momentum, 0, 0, 0, clip, trust), make, torch.float64)


@test
def lamb_is_what_its_paper_says(case):
    """Algorithm 2, phi being the identity."""
    rate, decay, beta1, beta2, epsilon = (float(numpy.float32(x)) for x in (0.01, 0.01, 0.9, 0.99, 1e-6))

    def make(tensors):
        firsts = [torch.zeros_like(tensor) for tensor in tensors]
        seconds = [torch.zeros_like(tensor) for tensor in tensors]

        @torch.no_grad()
        def step(count):
            for w, m, v in zip(tensors, firsts, seconds):
                m.mul_(beta1).add_((1 - beta1) * w.grad)
                v.mul_(beta2).add_((1 - beta2) * w.grad**2)
                r = (m / (1 - beta1**count)) / ((v / (1 - beta2**count)).sqrt() + epsilon)
                ratio = 1
                if w.dim() > 1:
                    r = r + decay * w
                    ratio = w.norm() / r.norm()
                w.sub_(rate * ratio * r)

        return step

    train("lamb", (rate, decay, 0, beta1, beta2, epsilon, 0, 0), make, torch.float64)
