"""The time of a step for any size of cluster: the simulation on a coarse shape, and, where a ps owns many slices, on two
with few of them. A step is a pipeline: once it is full, each further slice of every ps takes the same time."""
from dataclasses import dataclass

from . import shape, step

FEW, MANY = 16, 32  # slices of the busiest ps in the two runs: both well above the window


@dataclass(frozen=True)
class Prediction:
    step_s: float
    load: dict
    held_bytes: float  # the most that waited at one ps for the contributions of others, all of its slices taken
    events: int

    def limit(self):
        return max(self.load, key=self.load.get)


def predict(costs, n_workers, n_ps, n_bytes, network, slice_bytes=shape.MIB, units=24, **options):
    """options: of step.Run. The steady state of steps without computing between them."""
    most = shape.most_slices(n_ps, n_bytes, slice_bytes)
    times, loads, held, events = [], [], 0, 0
    for n in ((most,) if most <= MANY else (FEW, MANY)):
        small = shape.coarse(n_workers, n_ps, n_bytes, slice_bytes, units, fewer_slices=most - n)
        run = step.Run(costs, small, network, n_steps=2, **options)
        times.append(run.step_s())
        loads.append(run.load())
        held = max(ps.most_held_bytes for ps in run.ps)
        events += run.clock.events
    step_s = times[0] if most <= MANY else times[1] + (most - MANY) * (times[1] - times[0]) / (MANY - FEW)
    return Prediction(step_s, loads[-1], held, events)
