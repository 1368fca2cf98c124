"""Each layer forwards and backwards against PyTorch: the same random numbers, the same gradient of the result."""
import numpy
import torch
import torch.nn.functional as F

import opinion
from harness import check, test

# Of the largest number that is compared: both sides add in float, in orders of their own.
BOUND = 2e-5


def noise(shape, seed):
    return numpy.random.default_rng(seed).uniform(-1, 1, shape).astype(numpy.float32)


def near(found, wanted, what):
    wanted = wanted.detach().numpy().reshape(-1)
    found = numpy.asarray(found).reshape(-1)
    check(found.shape == wanted.shape, f"{what}: {found.size} elements, wanted {wanted.size}")
    scale = max(1, abs(wanted).max(initial=0))
    worst = abs(found - wanted).max(initial=0) / scale
    check(worst <= BOUND, f"{what}: differs by {worst:.2g} of {scale:.3g}, wanted {BOUND}")


def compare(ours, theirs, *shapes):
    """ours(pass, tensors...) and theirs(tensors...) make y of tensors of these shapes."""
    arrays = [noise(shape, 100 + i) for i, shape in enumerate(shapes)]
    gradients = [noise(shape, 200 + i) for i, shape in enumerate(shapes)]  # whatever was there is overwritten
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    wanted = theirs(*tensors)
    dy = noise(wanted.shape, 300)
    wanted.backward(torch.tensor(dy))
    p = opinion.Pass()
    y = ours(p, *(p.variable(a, g) for a, g in zip(arrays, gradients)))
    p.check()
    near(p.value(y), wanted, "result")
    p.backward(y, dy)
    p.check()
    for i, gradient in enumerate(gradients):
        near(gradient, tensors[i].grad, f"gradient {i}")
    p.close()


@test
def dense_layers_agree(case):
    for relu in (0, 1):
        compare(lambda p, x, w, b: p.dense(x, w, b, relu),
                lambda x, w, b: (F.relu if relu else lambda y: y)(x @ w + b), (33, 70), (70, 41), (41,))


@test
def relu_agrees(case):
    compare(lambda p, x: p.relu(x), F.relu, (5, 77))


@test
def convolutions_agree(case):
    for x, w, stride, padding, groups in (
            ((4, 1, 28, 28), (20, 1, 5, 5), 1, 2, 1), ((3, 20, 14, 14), (50, 20, 5, 5), 1, 2, 1),
            ((2, 8, 12, 11), (6, 8, 3, 3), 1, 0, 1), ((2, 16, 15, 14), (24, 16, 3, 3), 2, 1, 1),
            ((2, 12, 9, 9), (18, 4, 3, 3), 1, 1, 3), ((2, 8, 10, 10), (8, 1, 3, 3), 2, 1, 8),
            ((3, 32, 7, 7), (64, 32, 1, 1), 2, 0, 1), ((1, 3, 40, 40), (16, 3, 7, 7), 2, 3, 1),
            ((2, 32, 9, 8), (48, 32, 3, 3), 1, 1, 1), ((2, 64, 6, 7), (32, 32, 3, 3), 1, 1, 2)):
        compare(lambda p, x, w, b: p.conv2d(x, w, b, stride, padding, groups),
                lambda x, w, b: F.conv2d(x, w, b, stride, padding, 1, groups), x, w, (w[0],))
        compare(lambda p, x, w: p.conv2d(x, w, None, stride, padding, groups),
                lambda x, w: F.conv2d(x, w, None, stride, padding, 1, groups), x, w)


@test
def pooling_agrees(case):
    for window, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)):
        compare(lambda p, x: p.max_pool(x, window, stride, padding),
                lambda x: F.max_pool2d(x, window, stride, padding), (3, 4, 13, 14))
        compare(lambda p, x: p.average_pool(x, window, stride, padding),
                lambda x: F.avg_pool2d(x, window, stride, padding), (3, 4, 13, 14))


@test
def means_agree(case):
    compare(lambda p, x: p.global_average_pool(x), lambda x: x.mean((2, 3)), (3, 5, 7, 7))
    compare(lambda p, x: p.mean(x), torch.mean, (3, 5, 7))


@test
def cross_entropy_agrees(case):
    labels = numpy.random.default_rng(1).integers(0, 11, 40)
    compare(lambda p, x: p.cross_entropy(x, labels), lambda x: F.cross_entropy(x, torch.tensor(labels)), (40, 11))


@test
def smoothed_cross_entropy_agrees(case):
    labels = numpy.random.default_rng(1).integers(0, 11, 40)
    compare(lambda p, x: p.smoothed(x, labels, 0.1),
            lambda x: F.cross_entropy(x, torch.tensor(labels), label_smoothing=0.1), (40, 11))


@test
def transposed_convolutions_agree(case):
    for x, w, stride, padding, groups in (((2, 6, 5, 4), (6, 8, 3, 3), 1, 1, 1), ((2, 6, 5, 4), (6, 8, 4, 4), 2, 1, 1),
                                          ((2, 6, 5, 4), (6, 2, 3, 3), 2, 0, 3)):
        compare(lambda p, x, w, b: p.conv2d_transpose(x, w, b, stride, padding, groups),
                lambda x, w, b: F.conv_transpose2d(x, w, b, stride, padding, 0, groups), x, w, (w[1] * groups,))


@test
def functions_of_an_element_agree(case):
    for number, theirs in enumerate((torch.sigmoid, torch.tanh, F.softplus, F.gelu, lambda x: F.leaky_relu(x, 0.25))):
        compare(lambda p, x: p.unary(x, number, 0.25), theirs, (5, 77))


@test
def normalisation_agrees(case):
    compare(lambda p, x, g, b: p.layer_norm(x, g, b), lambda x, g, b: F.layer_norm(x, (19,), g, b), (4, 7, 19), (19,),
            (19,))
    compare(lambda p, x: p.softmax(x), lambda x: F.softmax(x, -1), (4, 7, 19))
    for shape in ((5, 6, 7, 7), (9, 6)):
        for relu in (0, 1):
            mean, variance = noise((6,), 1), abs(noise((6,), 2)) + 0.5
            for training in (0, 1):
                running = torch.tensor(mean.copy()), torch.tensor(variance.copy())
                proposals = numpy.zeros(6, numpy.float32), numpy.zeros(6, numpy.float32)
                compare(lambda p, x, g, b: p.batch_norm(x, g, b, p.variable(mean, proposals[0]),
                                                        p.variable(variance, proposals[1]), training, relu),
                        lambda x, g, b: (F.relu if relu else lambda y: y)(
                            F.batch_norm(x, *running, g, b, bool(training))), shape, (6,), (6,))
                near(proposals[0], running[0], "running mean")
                near(proposals[1], running[1], "running variance")


@test
def arithmetic_agrees(case):
    compare(lambda p, a, b: p.add(a, b), torch.add, (5, 7), (5, 7))
    compare(lambda p, a, b: p.multiply(a, p.add(a, b)), lambda a, b: a * (a + b), (5, 7), (5, 7))
    compare(lambda p, a, b: p.concat(a, b, 1), lambda a, b: torch.cat((a, b), 1), (3, 2, 4), (3, 5, 4))
    compare(lambda p, x: p.slice(x, 1, 2, 3), lambda x: x[:, 2:5], (3, 6, 4))
    compare(lambda p, x: p.upsample_nearest(x, 2), lambda x: F.interpolate(x, scale_factor=2), (2, 3, 4, 5))
    compare(lambda p, x, t: p.mean_squared_error(x, t), F.mse_loss, (5, 7), (5, 7))
    compare(lambda p, t: p.embedding(t, (3, 0, 3)), lambda t: F.embedding(torch.tensor((3, 0, 3)), t), (5, 7))


@test
def layers_after_each_other_agree(case):
    compare(lambda p, x, w, b, v, c: p.dense(p.flatten(p.relu(p.max_pool(p.conv2d(x, w, b, 1, 1, 1), 2, 2, 0))), v, c, 0),
            lambda x, w, b, v, c: F.relu(F.max_pool2d(F.conv2d(x, w, b, padding=1), 2)).flatten(1) @ v + c,
            (5, 3, 8, 8), (7, 3, 3, 3), (7,), (112, 10), (10,))
