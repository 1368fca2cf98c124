"""What opinion.c shows, for Python: a Pass with layers, update rules, models and the order of an epoch."""
import ctypes
import os

import numpy

POINTER = ctypes.c_void_p
SIZE = ctypes.c_uint64
lib = None


def load(build):
    global lib
    lib = ctypes.CDLL(os.path.join(build, "tests", "torch", "opinion.so"))
    for name, result, arguments in (
            ("begin", POINTER, []), ("end", None, [POINTER]), ("error", ctypes.c_char_p, [POINTER]),
            ("variable", POINTER, [POINTER, POINTER, POINTER, ctypes.c_uint32, POINTER]),
            ("value", POINTER, [POINTER]), ("size", SIZE, [POINTER]), ("backward", None, [POINTER, POINTER, POINTER]),
            ("update", ctypes.c_int, [ctypes.c_char_p, POINTER, SIZE, SIZE] + [POINTER] * 4),
            ("first_phase", ctypes.c_int, [ctypes.c_char_p, POINTER, SIZE, ctypes.c_int, SIZE] + [POINTER] * 5),
            ("second_phase", ctypes.c_int,
             [ctypes.c_char_p, POINTER, SIZE, ctypes.c_int, SIZE] + [POINTER] * 5 + [ctypes.c_double]),
            ("model", POINTER, [ctypes.c_char_p, POINTER, SIZE, SIZE, POINTER, SIZE, SIZE]),
            ("model_step", ctypes.c_double, [POINTER] * 4 + [SIZE, ctypes.c_float]),
            ("model_predict", POINTER, [POINTER] * 3 + [SIZE]), ("model_free", None, [POINTER]),
            ("model_variable", POINTER, [POINTER, SIZE]), ("variable_name", ctypes.c_char_p, [POINTER]),
            ("variable_value", POINTER, [POINTER]), ("variable_shape", ctypes.c_uint32, [POINTER, POINTER]),
            ("order", None, [SIZE, SIZE, SIZE, POINTER]),
            ("dense", POINTER, [POINTER] * 4 + [ctypes.c_int]), ("relu", POINTER, [POINTER] * 2),
            ("conv2d", POINTER, [POINTER] * 4 + [SIZE] * 3), ("max_pool", POINTER, [POINTER] * 2 + [SIZE] * 3),
            ("average_pool", POINTER, [POINTER] * 2 + [SIZE] * 3), ("global_average_pool", POINTER, [POINTER] * 2),
            ("mean", POINTER, [POINTER] * 2), ("flatten", POINTER, [POINTER] * 2),
            ("cross_entropy", POINTER, [POINTER] * 3 + [SIZE]), ("conv2d_transpose", POINTER, [POINTER] * 4 + [SIZE] * 3),
            ("upsample_nearest", POINTER, [POINTER] * 2 + [SIZE]),
            ("unary", POINTER, [POINTER] * 2 + [ctypes.c_int, ctypes.c_double]), ("softmax", POINTER, [POINTER] * 2),
            ("layer_norm", POINTER, [POINTER] * 4), ("batch_norm", POINTER, [POINTER] * 6 + [ctypes.c_int] * 2),
            ("add", POINTER, [POINTER] * 3), ("multiply", POINTER, [POINTER] * 3),
            ("concat", POINTER, [POINTER] * 3 + [ctypes.c_uint32]),
            ("slice", POINTER, [POINTER] * 2 + [ctypes.c_uint32, SIZE, SIZE]),
            ("embedding", POINTER, [POINTER] * 3 + [SIZE]),
            ("smoothed", POINTER, [POINTER] * 3 + [SIZE, ctypes.c_double]),
            ("mean_squared_error", POINTER, [POINTER] * 3)):
        function = getattr(lib, f"opinion_{name}")
        function.restype, function.argtypes = result, arguments


def address(array):
    assert array.flags["C_CONTIGUOUS"]
    return array.ctypes.data


class Pass:
    """One pass over a tape. Layers are its methods: p.conv2d(x, weight, bias, stride, padding, groups)."""

    def __init__(self):
        self.handle = lib.opinion_begin()
        self.kept = []  # arrays that the tape looks at

    def variable(self, value, gradient):
        shape = (ctypes.c_uint64 * 8)(*value.shape)
        return lib.opinion_variable(self.handle, address(value), address(gradient), value.ndim, shape)

    def __getattr__(self, layer):
        function = getattr(lib, f"opinion_{layer}")
        return lambda *arguments: function(self.handle, *arguments)

    def keep(self, numbers):
        self.kept.append(numpy.ascontiguousarray(numbers, numpy.uint32))
        return address(self.kept[-1])

    def cross_entropy(self, logits, labels):
        return lib.opinion_cross_entropy(self.handle, logits, self.keep(labels), len(labels))

    def smoothed(self, logits, labels, smoothing):
        return lib.opinion_smoothed(self.handle, logits, self.keep(labels), len(labels), smoothing)

    def embedding(self, table, ids):
        return lib.opinion_embedding(self.handle, table, self.keep(ids), len(ids))

    def value(self, tensor):
        n = lib.opinion_size(tensor)
        return numpy.ctypeslib.as_array(ctypes.cast(lib.opinion_value(tensor), ctypes.POINTER(ctypes.c_float)),
                                        (n,)).copy()

    def backward(self, y, dy):
        lib.opinion_backward(self.handle, y, address(dy))

    def check(self):
        error = lib.opinion_error(self.handle)
        if error:
            raise AssertionError(error.decode())

    def close(self):
        lib.opinion_end(self.handle)


def update_in_two_phases(rule, numbers, count, values, slots, gradients):
    """One step of all variables of a group: lists. Those of one dimension are exempt."""
    numbers = numpy.array(numbers, numpy.float32)
    made = [gradient.copy() for gradient in gradients]
    squares = numpy.zeros((len(values), 2))
    for i, value in enumerate(values):
        assert lib.opinion_first_phase(rule.encode(), address(numbers), count, value.ndim < 2, value.size, address(value),
                                       address(slots[i][0]), address(slots[i][1]), address(made[i]),
                                       address(squares[i])) == 0
    for i, value in enumerate(values):
        assert lib.opinion_second_phase(rule.encode(), address(numbers), count, value.ndim < 2, value.size,
                                        address(value), address(slots[i][0]), address(slots[i][1]), address(made[i]),
                                        address(squares[i]), float(sum(squares[:, 1]))) == 0


def update(rule, numbers, count, value, slots, gradient):
    numbers = numpy.array(tuple(numbers) + (0, 0), numpy.float32)
    assert lib.opinion_update(rule.encode(), address(numbers), count, value.size,
                              address(value), address(slots[0]), address(slots[1]), address(gradient)) == 0


class Model:
    """A built-in model with its initial values; image: channels, height, width."""

    def __init__(self, name, image, classes, seed, hidden=(), base_width=0):
        self.handle = lib.opinion_model(name.encode(), (ctypes.c_uint64 * len(hidden))(*hidden), len(hidden), base_width,
                                        (ctypes.c_uint64 * 3)(*image), classes, seed)
        assert self.handle

    def values(self):
        """[(name, array)] in declared order."""
        values = []
        while variable := lib.opinion_model_variable(self.handle, len(values)):
            shape = (ctypes.c_uint64 * 8)()
            rank = lib.opinion_variable_shape(variable, shape)
            pointer = ctypes.cast(lib.opinion_variable_value(variable), ctypes.POINTER(ctypes.c_float))
            values.append((lib.opinion_variable_name(variable).decode(),
                           numpy.ctypeslib.as_array(pointer, tuple(shape[:rank])).copy()))
        return values

    def step(self, p, x, labels, rate):
        return lib.opinion_model_step(p.handle, self.handle, address(x), p.keep(labels), len(labels), rate)

    def predict(self, p, x):
        return p.value(lib.opinion_model_predict(p.handle, self.handle, address(x), len(x)))

    def close(self):
        lib.opinion_model_free(self.handle)


def initial_values(name, hidden, height, width, classes, seed):
    """[(name, array)] in declared order."""
    model = Model(name, (1, height, width), classes, seed, hidden)
    values = model.values()
    model.close()
    return values


def order(seed, epoch, n):
    indices = numpy.empty(n, numpy.uint32)
    lib.opinion_order(seed, epoch, n, address(indices))
    return indices
