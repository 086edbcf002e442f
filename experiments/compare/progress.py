"""Says on the terminal how far a comparison is, drawing only between measurements."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from acclimate.experiments.compare.plan import Plan
from acclimate.experiments.compare.worker import Order

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """Lines and a status on a console; nothing runs beside an engine that is being timed.

    Parameters
    ----------
    console
        Of the error stream.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.where = ""
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
        )
        self._bar = Bar(*columns, console=console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task("starting", total=None)
        self._rounds = 0
        self._round = -1
        self._begun_s = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)
        self._bar.update(self._task, description=line)
        self._bar.refresh()

    def plan(self, plan: Plan, capacity_per_s: float, spent_s: float) -> None:
        """Say what is going to happen and how long it should take."""
        self._rounds = plan.rounds
        self._begun_s = time.monotonic()
        cells = [c for n in range(plan.rounds) for c in plan.cells if c.runs_in(n)]
        steps = sum(c.passes * c.blocks for c in cells)
        self._bar.update(self._task, total=steps, completed=0)
        self.say(
            f"k0 serves up to {capacity_per_s:.2f} requests/s; {plan.rounds} rounds of "
            f"{plan.arms} arms should take {plan.total_s / 60:.0f} minutes, "
            f"{(plan.total_s + spent_s) / 60:.0f} with what is past"
        )
        if plan.words:
            self.say(f"to keep to the time: {plan.words}")

    def order(self, order: Order) -> None:
        """Say what runs now."""
        if order.round < 0:
            words = f"warm-up: {order.arm}"
        else:
            if order.round != self._round:
                self._new_round(order.round)
            words = f"round {order.round + 1} of {self._rounds}, {order.cell}, {order.arm}"
            self.where = f"in {words}"
            self._bar.advance(self._task)
        self._bar.update(self._task, description=words)
        self._bar.refresh()

    def finished(self, rounds: int, plan: Plan) -> None:
        """Say how many rounds there were."""
        took = (time.monotonic() - self._begun_s) / 60
        self.say(f"{rounds} of {plan.rounds} rounds in {took:.1f} minutes")

    def out_of_time(self, rounds: int, wanted: int) -> None:
        """Say that the budget ends the run."""
        self.say(f"the time is up: stopping after {rounds} of {wanted} rounds")

    def _new_round(self, number: int) -> None:
        if number:
            took = (time.monotonic() - self._begun_s) / 60
            self.say(f"{number} of {self._rounds} rounds done, {took:.1f} minutes")
        self._round = number
