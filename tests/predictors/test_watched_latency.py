"""A common change of step times: noticed once, in both directions, and followed by every cell."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.predictors.watched_latency import WatchedLatency

CELLS = [(n, n * k) for n in (1, 4, 8, 16) for k in (0, 1, 2, 4)]
FEW = [CELLS[i] for i in (0, 5, 6, 11, 14)]


def true_ms(n, m):
    return 20.0 + 0.3 * n + 0.4 * m + (5.0 if m == 0 else 0.0)


class Engine:
    """Teaches a model steps that scatter by 5 % and now and then stall."""

    def __init__(self, seed):
        self.model = WatchedLatency(16, 64)
        self.rng = np.random.default_rng(seed)
        self.shifts = []

    def serve(self, cells, steps, factor=1.0, only=None):
        for step in range(steps):
            n, m = cells[step % len(cells)]
            ms = true_ms(n, m) * self.rng.lognormal(sigma=0.05)
            ms *= factor if only is None or (n, m) == only else 1.0
            self.model.learn(n, m, latency_ms=ms * (10.0 if self.rng.random() < 0.02 else 1.0))
            if self.model.shift is not None:
                self.shifts.append(self.model.shift)

    def errors(self, factor=1.0, cells=CELLS):
        return [abs(self.model.curve(n, m)[m] / (factor * true_ms(n, m)) - 1.0) for n, m in cells]


@pytest.mark.parametrize("factor", [1.5, 1.25, 0.67, 3.0])
def test_all_cells_follow_a_change_that_five_of_them_showed(factor):
    worst = []
    for seed in range(6):
        engine = Engine(seed)
        engine.serve(CELLS, 320)
        engine.serve(FEW, 50, factor)
        assert len(engine.shifts) == 1
        assert engine.shifts[0].after == pytest.approx(factor, rel=0.1)
        assert engine.shifts[0].tokens_since < 25
        worst.append(np.median(engine.errors(factor)))
    assert np.mean(worst) < 0.03


def test_a_change_and_its_end_are_one_alarm_each():
    engine = Engine(1)
    engine.serve(CELLS, 320)
    engine.serve(CELLS, 400, 1.5)
    engine.serve(CELLS, 400)
    assert [shift.after > shift.before for shift in engine.shifts] == [True, False]
    assert np.median(engine.errors()) < 0.02


def test_one_cell_that_becomes_slow_takes_no_other_along():
    engine = Engine(2)
    engine.serve(CELLS, 320)
    engine.serve(CELLS, 320, 2.0, only=(8, 16))
    others = [cell for cell in CELLS if cell != (8, 16)]
    assert engine.shifts == []
    assert np.median(engine.errors(cells=others)) < 0.02
    assert engine.errors(2.0, cells=[(8, 16)])[0] < 0.1


def test_steps_as_ever_give_no_alarm():
    engine = Engine(3)
    engine.serve(CELLS, 6_000)
    assert engine.shifts == []
    assert engine.model.pace == 1.0


def test_a_declared_change_needs_no_alarm():
    engine = Engine(4)
    engine.serve(CELLS, 320)
    engine.model.expect_change()
    engine.serve(FEW, 10, 1.5)
    assert engine.shifts == []
    assert np.median(engine.errors(1.5)) < 0.05


def test_save_and_load_gives_the_same_bits_in_the_middle_of_a_change():
    engine, again = Engine(5), Engine(5)
    engine.serve(CELLS, 320)
    engine.serve(FEW, 4, 1.5)
    again.model.load(engine.model.state())
    for each in (engine, again):
        each.rng = np.random.default_rng(6)
        each.serve(FEW, 40, 1.5)
    assert len(again.shifts) == 1
    assert engine.model.pace == again.model.pace != 1.0
    assert (engine.model.curve(8, 64) == again.model.curve(8, 64)).all()
