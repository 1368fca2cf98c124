"""Fashion-MNIST as the workers get it: normalised by the training set, in the order of seed and epoch."""
import gzip

import numpy
import torch

import opinion

FOLDER = "/usr/share/datasets/fashion-mnist"
CLASSES = 10


def read_idx(name, offset, shape):
    with gzip.open(f"{FOLDER}/{name}-ubyte.gz") as f:
        return numpy.frombuffer(f.read(), numpy.uint8, offset=offset).reshape(shape)


def read(which):
    """Images and labels of "train" or "t10k"."""
    return read_idx(f"{which}-images-idx3", 16, (-1, 28, 28)), read_idx(f"{which}-labels-idx1", 8, (-1,))


def normalise(images, train):
    mean, deviation = numpy.float32(train.mean()), numpy.float32(train.std())
    return (images.astype(numpy.float32) - mean) / deviation


def batches(seed, size, n):
    """(images, labels) of the first n steps, the parts of all workers together; the last of an epoch may be short."""
    images, labels = read("train")
    per_epoch = -(-len(images) // size)
    for step in range(n):
        if step % per_epoch == 0:
            order = opinion.order(seed, step // per_epoch, len(images))
        rows = order[step % per_epoch * size:][:size]
        yield torch.tensor(normalise(images[rows], images)), torch.tensor(labels[rows].astype(numpy.int64))
