"""Each update rule against torch.optim over 100 steps, the first one included, with the same gradients."""
import numpy
import torch

import opinion
from harness import check, test

STEPS = 100
N = 1000
BOUND = 2e-6  # of the largest value


def compare(rule, optimizer, rate, decay=0, momentum=0, beta1=0, beta2=0, epsilon=0):
    random = numpy.random.default_rng(7)
    value = random.uniform(-1, 1, N).astype(numpy.float32)
    theirs = torch.tensor(value.copy(), requires_grad=True)
    optimizer = optimizer([theirs])
    slots = [numpy.zeros(N, numpy.float32), numpy.zeros(N, numpy.float32)]
    for step in range(STEPS):
        gradient = random.normal(0, 1, N).astype(numpy.float32)
        opinion.update(rule, (rate, decay, momentum, beta1, beta2, epsilon), step + 1, value, slots, gradient)
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        wanted = theirs.detach().numpy()
        worst = abs(value - wanted).max() / max(1, abs(wanted).max())
        check(worst <= BOUND, f"{rule}: differs by {worst:.2g} after step {step + 1}, wanted {BOUND}")


@test
def sgd_agrees(case):
    for decay in (0, 0.01):
        compare("sgd", lambda p: torch.optim.SGD(p, 0.05, weight_decay=decay), 0.05, decay)


@test
def momentum_agrees(case):
    for decay in (0, 0.01):
        compare("momentum", lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=decay), 0.05, decay, 0.9)


@test
def nesterov_agrees(case):
    compare("nesterov", lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01), 0.05, 0.01,
            0.9)


@test
def adam_agrees(case):
    for decay in (0, 0.01):
        compare("adam", lambda p: torch.optim.Adam(p, 0.01, (0.9, 0.99), 1e-8, decay), 0.01, decay, 0, 0.9, 0.99, 1e-8)


@test
def adamw_agrees(case):
    compare("adamw", lambda p: torch.optim.AdamW(p, 0.01, (0.9, 0.99), 1e-8, 0.1), 0.01, 0.1, 0, 0.9, 0.99, 1e-8)


@test
def adagrad_agrees(case):
    for decay in (0, 0.01):
        compare("adagrad", lambda p: torch.optim.Adagrad(p, 0.05, weight_decay=decay, eps=1e-8), 0.05, decay, 0, 0, 0,
                1e-8)


@test
def rmsprop_agrees(case):
    for decay in (0, 0.01):
        compare("rmsprop", lambda p: torch.optim.RMSprop(p, 0.01, 0.99, 1e-8, decay), 0.01, decay, 0, 0, 0.99, 1e-8)


@test
def average_agrees(case):
    """One value after the other, each with the weight that makes the mean of all so far: torch's AveragedModel."""
    random = numpy.random.default_rng(7)
    model = torch.nn.Linear(N, 1, bias=False)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    value = numpy.full(N, 1000, numpy.float32)
    for step in range(STEPS):
        pushed = random.normal(0, 1, N).astype(numpy.float32)
        model.weight.data = torch.tensor(pushed.reshape(1, N))
        averaged.update_parameters(model)
        opinion.update("average", (0, 0, 0, 0, 0, 0), step + 1, value, [value, value], pushed)
        worst = abs(value - averaged.module.weight.detach().numpy().reshape(N)).max()
        check(worst <= BOUND, f"average: differs by {worst:.2g} after step {step + 1}, wanted {BOUND}")
