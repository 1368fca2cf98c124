"""resnet18 and resnet50 against the same networks in PyTorch: the same initial values and images, the loss of each step,
and what the trained network predicts by its running statistics.

    SG_TORCH_LONG=1 tests/torch/run build resnet    50 steps at full width and size, and two epochs of Fashion-MNIST
                                                    at width 16: half an hour

The rates are low: inputs of a relu that are within rounding of 0 let the two part, and the more layers there are, the
faster that grows. PyTorch's own float and double differ by as much: resnet50 below, at ten times the rate, by 4e-3 in
the fourth step."""
import os

import numpy
import torch
import torch.nn.functional as F

import fashion
import opinion
from harness import check, test

LONG = "SG_TORCH_LONG" in os.environ
CLASSES = fashion.CLASSES


class Network:
    """Takes the variables in the order in which they were declared."""

    def __init__(self, values, image):
        trained = lambda name: not name.endswith((".mean", ".variance"))
        self.values = [torch.tensor(value, requires_grad=trained(name)) for name, value in values]
        self.image = image

    def next(self):
        self.place += 1
        return self.values[self.place - 1]

    def convolve(self, x, stride=1, relu=True):
        weight = self.next()
        x = F.conv2d(x, weight, None, stride, weight.shape[2] // 2)
        gamma, beta, mean, variance = (self.next() for _ in range(4))
        x = F.batch_norm(x, mean, variance, gamma, beta, self.training, 0.1, 1e-5)
        return F.relu(x) if relu else x

    def block(self, x, strides, has_shortcut):
        """strides: of each convolution."""
        y = x
        for i, stride in enumerate(strides):
            y = self.convolve(y, stride, i + 1 < len(strides))
        return F.relu(y + (self.convolve(x, max(strides), False) if has_shortcut else x))

    def forward(self, x, training):
        self.place, self.training = 0, training
        return self.layers(torch.as_tensor(x).reshape(-1, *self.image))

    def classify(self, x):
        weight, bias = self.next(), self.next()
        return x.mean((2, 3)) @ weight + bias

    def optimizer(self, rate, momentum=0):
        return torch.optim.SGD([value for value in self.values if value.requires_grad], rate, momentum)

    def step(self, x, labels, optimizer):
        optimizer.zero_grad()
        loss = F.cross_entropy(self.forward(x, True), torch.as_tensor(labels))
        loss.backward()
        optimizer.step()
        return loss.item()


class Resnet18(Network):
    def layers(self, x):
        x = self.convolve(x)
        for stage in range(4):
            stride = 2 if stage > 0 else 1
            x = self.block(self.block(x, (stride, 1), stage > 0), (1, 1), False)
        return self.classify(x)


class Resnet50(Network):
    def layers(self, x):
        x = F.max_pool2d(self.convolve(x, 2), 3, 2, 1)
        for stage, n in enumerate((3, 4, 6, 3)):
            for i in range(n):
                x = self.block(x, (1, 2 if stage > 0 and i == 0 else 1, 1), i == 0)
        return self.classify(x)


def compare(name, kind, image, width, batch, steps, rate, bound):
    ours = opinion.Model(name, image, CLASSES, 1, base_width=width)
    theirs = kind(ours.values(), image)
    optimizer = theirs.optimizer(rate)
    random = numpy.random.default_rng(5)
    # A pattern for each class, and noise, so that there is something to learn.
    patterns = random.normal(0, 1, (CLASSES, int(numpy.prod(image)))).astype(numpy.float32)
    p, losses = opinion.Pass(), []
    labels = random.integers(0, CLASSES, batch)
    x = patterns[labels] + random.normal(0, 1, (batch, patterns.shape[1])).astype(numpy.float32)
    for _ in range(steps):
        losses.append((ours.step(p, x, labels, rate), theirs.step(x, labels, optimizer)))
        p.check()
    with torch.no_grad():
        wanted = theirs.forward(x, False).numpy().reshape(-1)
    found = ours.predict(p, x)
    p.check()
    p.close()
    ours.close()
    worst = max(abs(a - b) / b for a, b in losses)
    apart = abs(found - wanted).max() / max(1, abs(wanted).max())
    print(f"    {name}, width {width}, {image}, batch {batch}, {steps} steps: loss {losses[0][1]:.4f} to "
          f"{losses[-1][1]:.4f}, differs by {worst:.2g} at most; what is predicted by {apart:.2g}", flush=True)
    check(losses[-1][1] < losses[0][1], f"{name}: nothing was learned, which proves nothing: {losses}")
    check(worst <= bound, f"{name}: the loss of a step differs by {worst:.2g}, wanted {bound}")
    check(apart <= bound, f"{name}: what is predicted differs by {apart:.2g}, wanted {bound}")


@test
def resnet18_is_trained_as_by_pytorch(case):
    if LONG:
        compare("resnet18", Resnet18, (1, 28, 28), 64, 32, 50, 0.0005, 1e-2)
    else:
        compare("resnet18", Resnet18, (1, 28, 28), 16, 16, 6, 0.001, 1e-3)


@test
def resnet50_is_trained_as_by_pytorch(case):
    if LONG:
        compare("resnet50", Resnet50, (3, 224, 224), 64, 8, 50, 1e-6, 1e-2)
    else:
        compare("resnet50", Resnet50, (3, 64, 64), 16, 16, 4, 1e-6, 1e-2)


def accuracy_of_torch(epochs, batch, rate, momentum):
    model = opinion.Model("resnet18", (1, 28, 28), CLASSES, 1, base_width=16)
    network = Resnet18(model.values(), (1, 28, 28))
    model.close()
    optimizer = network.optimizer(rate, momentum)
    train, _ = fashion.read("train")
    for images, labels in fashion.batches(1, batch, epochs * -(-len(train) // batch)):
        network.step(images, labels, optimizer)
    images, labels = fashion.read("t10k")
    correct = 0
    with torch.no_grad():
        for first in range(0, len(images), 500):
            x = fashion.normalise(images[first:first + 500], train)
            correct += (network.forward(x, False).argmax(1).numpy() == labels[first:first + 500]).sum()
    return correct / len(images)


if LONG:
    @test
    def resnet18_of_width_16_learns_fashion_mnist_as_well_as_pytorchs(case):
        wanted = accuracy_of_torch(2, 128, 0.02, 0.9)
        run_dir = f"{case.dir}/run"
        case.shardgrad("run", "configs/fashion-mnist.yaml", "--run-dir", run_dir, "--ps", "2", "--workers", "1",
                       *(word for key in ("model.name=resnet18", "model.width=16", "train.epochs=2", "train.batch=128",
                                          "update.rule=momentum", "update.momentum=0.9", "update.learning_rate=0.02",
                                          "update.schedule=constant", "update.warmup_steps=0") for word in ("--set", key)),
                       timeout_s=3600)
        found = case.summary(run_dir)["test_accuracy"]
        print(f"    resnet18, width 16, 2 epochs: test accuracy {found:.4f}, PyTorch's {wanted:.4f}", flush=True)
        check(wanted > 0.85, f"PyTorch learned little, which proves nothing: {wanted}")
        check(abs(found - wanted) <= 0.01, f"test accuracy {found:.4f}, PyTorch's {wanted:.4f}: wanted within 0.01")
