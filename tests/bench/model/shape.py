"""What a step is made of: who takes part, and which slices lie where.

A shape is exact, or coarse: all workers are alike, and so are all ps that own the same number of slices, so a few stand for
many. One that stands for k costs its peers what k would cost them, and itself what one costs."""
import math
from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class Ps:
    stands_for: float
    slices: tuple  # bytes of each
    coordinates: bool = False  # it is ps 0


@dataclass(frozen=True)
class Shape:
    n_workers: int
    n_ps: int
    workers: tuple  # for how many each stands
    ps: tuple


def slice_sizes(n_bytes, slice_bytes):
    """Of one large variable. A model of many adds a short last slice for each."""
    whole, rest = divmod(n_bytes, slice_bytes)
    return [slice_bytes] * whole + ([rest] if rest else [])


def exact(n_workers, n_ps, n_bytes, slice_bytes=MIB):
    """Slices go to the ps with the fewest bytes, the lowest index on ties, as the plan does it."""
    owned = [[] for _ in range(n_ps)]
    filled = [0] * n_ps
    for size in slice_sizes(n_bytes, slice_bytes):
        owner = filled.index(min(filled))
        owned[owner].append(size)
        filled[owner] += size
    ps = tuple(Ps(1, tuple(sizes), i == 0) for i, sizes in enumerate(owned))
    return Shape(n_workers, n_ps, (1,) * n_workers, ps)


def _spread(n, most):
    """n of a kind as at most `most` representatives."""
    n_representatives = min(n, most)
    return [n / n_representatives] * n_representatives if n else []


def coarse(n_workers, n_ps, n_bytes, slice_bytes=MIB, units=64, fewer_slices=0):
    """The same step with few who take part: at least `units` messages at each of them where there are so many, so that
    what one message takes is small beside the whole. fewer_slices are left out at every ps."""
    n_slices = math.ceil(n_bytes / slice_bytes)
    size = n_bytes / n_slices
    least, n_heavy = divmod(n_slices, n_ps)
    n_heavy, most = (n_heavy, least + 1) if n_heavy else (n_ps, least)
    reps = max(4, math.ceil(units / (most - fewer_slices)))
    ps = [Ps(1, (size,) * (most - fewer_slices), True)]
    ps += [Ps(k, (size,) * (most - fewer_slices)) for k in _spread(n_heavy - 1, reps)]
    if least > fewer_slices:
        ps += [Ps(k, (size,) * (least - fewer_slices)) for k in _spread(n_ps - n_heavy, reps)]
    return Shape(n_workers, n_ps, tuple(_spread(n_workers, 2 * reps)), tuple(ps))


def most_slices(n_ps, n_bytes, slice_bytes=MIB):
    return math.ceil(math.ceil(n_bytes / slice_bytes) / n_ps)
