"""Step times keep what was measured, cliffs included, and never fall where nothing was."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.experiments.simulation.curve_time import CurveTime
from acclimate.experiments.simulation.roofline import GPUS, LLAMA_8B, ModelShape, RooflineTime
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.predictors.latency import StepLatency

# Milliseconds per step by batch at depths 0, 1, 3, 5.
F2 = {
    1: (6.52, 7.37, 8.84, 10.33),
    4: (6.60, 7.47, 8.98, 10.40),
    16: (6.90, 7.85, 9.52, 11.20),
    64: (7.77, 9.66, 13.50, 16.83),
    256: (14.49, 27.14, 41.85, 57.40),
}
DEPTHS = (0, 1, 3, 5)
BATCH = [b for b in F2 for _ in DEPTHS]
DEPTH = [k for _ in F2 for k in DEPTHS]
MS = [ms for row in F2.values() for ms in row]


def _f2(**options: Any) -> TableTime:
    return TableTime(BATCH, DEPTH, MS, **options)


@pytest.mark.parametrize("draft_share", [0.0, 0.3, 1.0])
def test_a_static_depth_costs_what_the_table_says(draft_share: float) -> None:
    table = _f2(draft_share=draft_share)
    for b, k, ms in zip(BATCH, DEPTH, MS, strict=True):
        seen = table.step_ms(StepMakeUp(b, b * k, draft_depth=k))
        assert seen == ms if draft_share == 0 else seen == pytest.approx(ms, rel=1e-12)


def test_a_share_for_drafting_is_paid_when_drafting() -> None:
    table = _f2(draft_share=0.4)
    assert table.step_ms(StepMakeUp(1, 0)) == 6.52
    assert table.step_ms(StepMakeUp(1, 3)) == pytest.approx(6.52 + 0.6 * (8.84 - 6.52))
    assert table.step_ms(StepMakeUp(1, 0, draft_depth=3)) == pytest.approx(
        6.52 + 0.4 * (8.84 - 6.52)
    )


@pytest.mark.parametrize(
    ("survival", "best"),
    [
        ((0.681, 0.391, 0.204, 0.101, 0.051), (3, 3, 3, 1, 0)),
        ((0.76, 0.54, 0.39, 0.28, 0.21), (5, 5, 5, 3, 0)),
        ((0.17, 0.15, 0.12, 0.01, 0.01), (3, 3, 3, 0, 0)),
    ],
)
def test_the_best_depth_of_the_published_table(
    survival: tuple[float, ...], best: tuple[int, ...]
) -> None:
    table = _f2()
    chosen = tuple(
        max(
            DEPTHS,
            key=lambda k: (1 + sum(survival[:k])) / table.step_ms(StepMakeUp(b, b * k)),
        )
        for b in F2
    )
    assert chosen == best


def test_between_cells_everything_is_linear() -> None:
    table = _f2()
    assert table.step_ms(StepMakeUp(4, 8)) == pytest.approx((7.47 + 8.98) / 2)
    assert table.step_ms(StepMakeUp(40, 0)) == pytest.approx((6.90 + 7.77) / 2)
    assert table.step_ms(StepMakeUp(10, 30)) == pytest.approx((8.98 + 9.52) / 2)


def test_beyond_the_table() -> None:
    table = _f2()
    slope = (14.49 - 7.77) / (256 - 64)
    assert table.step_ms(StepMakeUp(300, 0)) == pytest.approx(14.49 + 44 * slope)
    assert table.step_ms(StepMakeUp(1, 7)) == pytest.approx(10.33 + (10.33 - 8.84))
    few = TableTime([4, 4, 8, 8], [0, 2, 0, 2], [10.0, 12.0, 9.0, 11.0])
    assert few.step_ms(StepMakeUp(2, 4)) == 12.0
    assert few.step_ms(StepMakeUp(99, 0)) == 9.0


def test_a_cliff_stays_where_it_was_measured() -> None:
    # 48 verified tokens cost four times what 64 cost: graph capture makes such tables.
    table = TableTime([16] * 5, [0, 2, 3, 4, 8], [10.0, 11.0, 48.0, 12.0, 14.0])
    curve = table.curve(StepMakeUp(16, 128))
    assert curve[[0, 32, 48, 64, 128]].tolist() == [10.0, 11.0, 48.0, 12.0, 14.0]
    assert curve[40] == pytest.approx((11.0 + 48.0) / 2)


def test_rows_may_list_different_depths_and_lack_depth_zero() -> None:
    table = TableTime([1, 1, 2, 2, 2], [1, 3, 0, 2, 6], [7.0, 9.0, 6.0, 8.0, 16.0])
    assert table.step_ms(StepMakeUp(1, 0)) == 6.0
    assert table.step_ms(StepMakeUp(2, 12)) == 16.0
    assert table.step_ms(StepMakeUp(1, 6)) == 12.0
    steep = TableTime([1, 1], [1, 2], [5.0, 20.0])
    assert steep.step_ms(StepMakeUp(1, 0)) == 2.5


def test_repeated_cells_count_with_their_median() -> None:
    table = TableTime([1, 1, 1], [0, 0, 0], [10.0, 90.0, 11.0])
    assert table.step_ms(StepMakeUp(1, 0)) == 11.0


def test_context_and_prefill_columns() -> None:
    table = TableTime(
        [1, 1, 8, 8, 1, 8, 1],
        [0, 4, 0, 4, 0, 4, 0],
        [10.0, 12.0, 16.0, 40.0, 14.0, 50.0, 60.0],
        context=[100, 100, 100, 100, 1100, 1100, 100],
        prefill=[0, 0, 0, 0, 0, 0, 512],
    )
    assert table.step_ms(StepMakeUp(8, 32, context_tokens=8 * 1100)) == 50.0
    assert table.step_ms(StepMakeUp(1, 0, context_tokens=600)) == 12.0
    assert table.step_ms(StepMakeUp(1, 0, context_tokens=100, prefill_tokens=512)) == 60.0
    # Never measured together: both costs.
    assert table.step_ms(StepMakeUp(1, 0, context_tokens=1100, prefill_tokens=512)) == 64.0
    # What a prefill adds at one request it adds at eight.
    assert table.step_ms(StepMakeUp(8, 0, context_tokens=800, prefill_tokens=512)) == 66.0


def test_prefill_without_a_column_costs_what_a_token_costs_in_the_largest_batch() -> None:
    token_ms = (57.40 - 14.49) / (256 * 5)
    assert _f2().step_ms(StepMakeUp(1, 0, prefill_tokens=1000)) == pytest.approx(
        6.52 + 1000 * token_ms
    )
    assert _f2(prefill_ms_per_token=0.0).step_ms(StepMakeUp(1, 0, prefill_tokens=9)) == 6.52


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], []), "must have a row"),
        (([1], [0], [0.0]), "ms must be > 0"),
        (([1], [0], [float("nan")]), "ms must be finite"),
        (([0], [0], [1.0]), "batch must be >= 1"),
        (([1], [-1], [1.0]), "depth must be >= 0"),
        (([1, 2], [0], [1.0]), "batch must have 1 entries"),
    ],
)
def test_impossible_tables_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableTime(*arguments)


def test_a_context_without_its_base_is_refused() -> None:
    with pytest.raises(ValueError, match="context 900 with prefill 0"):
        TableTime([1, 1], [0, 0], [1.0, 2.0], context=[0, 900], prefill=[0, 512])


_CELLS = st.dictionaries(
    st.tuples(st.integers(1, 64), st.integers(0, 8)),
    st.floats(0.5, 500.0),
    min_size=1,
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(_CELLS, st.integers(0, 100), st.integers(0, 200), st.integers(0, 2_000))
def test_any_table_gives_positive_times_and_its_own_cells(
    cells: dict[tuple[int, int], float], requests: int, verified: int, prefill: int
) -> None:
    table = TableTime([b for b, _ in cells], [k for _, k in cells], list(cells.values()))
    for (b, k), ms in cells.items():
        assert table.step_ms(StepMakeUp(b, b * k)) == ms
    curve = table.curve(StepMakeUp(requests, verified, prefill_tokens=prefill))
    assert curve.shape == (verified + 1,) and np.isfinite(curve).all() and curve.min() > 0
    last = table.step_ms(StepMakeUp(requests, verified, prefill_tokens=prefill))
    assert last == curve[-1]


def test_a_learned_curve_goes_on_where_the_model_ends() -> None:
    model = StepLatency(max_requests=4, max_verified=8)
    for step in range(400):
        m = step % 9
        model.learn(4, m, latency_ms=20.0 + 0.5 * m)
    times = CurveTime(model)
    curve = times.curve(StepMakeUp(4, 12))
    assert curve[:9].tolist() == model.curve(4, 8).tolist()
    assert np.all(np.diff(curve[8:]) >= 0)
    assert times.step_ms(StepMakeUp(4, 12)) == curve[12]


@pytest.mark.parametrize("gpu", GPUS)
def test_verification_is_free_on_an_idle_gpu_and_full_price_on_a_busy_one(gpu: str) -> None:
    times = RooflineTime(gpu)
    alone = times.curve(StepMakeUp(1, 5))
    busy = times.curve(StepMakeUp(1024, 5 * 1024))
    assert alone[5] < 1.01 * alone[0]
    assert busy[-1] > 4.0 * busy[0]
    assert alone[3] == times.step_ms(StepMakeUp(1, 3))


def test_the_roofline_is_near_a_measured_table_where_memory_binds() -> None:
    assert RooflineTime("h100").step_ms(StepMakeUp(1, 0)) == pytest.approx(6.52, rel=0.05)


def test_context_prefill_rows_and_drafting_cost_time() -> None:
    draft = ModelShape(2.5e8, layers=1, kv_heads=8, heads=32, head_size=128)
    times: StepTime = RooflineTime("h200", LLAMA_8B, draft=draft, sampled_row_ms=0.01)
    base = times.step_ms(StepMakeUp(8, 8))
    for more in ("context_tokens", "prefill_tokens", "sampled_rows", "draft_depth"):
        costs: dict[str, int] = {more: 4000 if more.endswith("tokens") else 4}
        assert times.step_ms(StepMakeUp(8, 8, **costs)) > base


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="must fit into the 24 GB"):
        RooflineTime("rtx4090", ModelShape(7e10, 80, 8, 64, 128))
    with pytest.raises(ValueError, match="gpu must be one of a100, h100, h200, rtx4090"):
        RooflineTime("b200")
