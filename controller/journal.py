"""Numbers a loop's events and hands them to every sink; after a gap a sink starts afresh."""

from __future__ import annotations

from collections.abc import Callable

from acclimate.controller.events import ConfigEvent, Event, EventQueue, GapEvent, SnapshotEvent
from acclimate.controller.policy import Policy


class Journal:
    """The events of one loop, in one order, for any number of queues.

    Parameters
    ----------
    policy
        Returns the policy in force, whose state a snapshot takes.
    config
        Returns version and content of the configuration in force.
    failed
        Told when a policy's state cannot be taken.

    Examples
    --------
    >>> from acclimate.controller.events import FreeEvent
    >>> from acclimate.controller.records import Capabilities
    >>> from acclimate.controller.static import StaticPolicy
    >>> policy = StaticPolicy(1, Capabilities(max_depth=1, depths=(0, 1)))
    >>> journal = Journal(lambda: policy, lambda: (1, {}), failed=print)
    >>> queue = EventQueue()
    >>> journal.attach(queue)
    >>> journal.write(FreeEvent, request=7)
    >>> [type(event).__name__ for event in queue.take()]
    ['ConfigEvent', 'SnapshotEvent', 'FreeEvent']
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        config: Callable[[], tuple[int, dict[str, object]]],
        *,
        failed: Callable[[Exception], None],
    ) -> None:
        self._policy = policy
        self._config = config
        self._failed = failed
        self._queues: list[EventQueue] = []
        self._seq = 0

    def __bool__(self) -> bool:
        """Whether anybody reads."""
        return bool(self._queues)

    @property
    def lost(self) -> int:
        """Events that found no room, over all queues."""
        return sum(queue.lost for queue in self._queues)

    def attach(self, queue: EventQueue) -> None:
        """Send events to a queue from now on, beginning with configuration and state."""
        self._queues.append(queue)
        self._start([queue])

    def detach(self, queue: EventQueue) -> None:
        """Send no more events to a queue; what is in it stays. An unknown queue is no error."""
        self._queues = [other for other in self._queues if other is not queue]

    def write(self, kind: Callable[..., Event], **fields: object) -> None:
        """Number an event and hand it to every queue."""
        if not self._queues:
            return
        event = kind(seq=self._next(), **fields)
        for queue in self._queues:
            if queue.overflowed:
                # What is in the state needs no event: this one is the last of the gap.
                queue.put(GapEvent(self._next(), queue.resume(dropped=1)))
                self._start([queue])
                continue
            queue.put(event)
            if queue.snapshot_wanted:
                self.snapshot([queue])

    def start(self) -> None:
        """Send what a reader needs to begin: configuration in force and state, to every queue."""
        self._start(self._queues)

    def snapshot(self, queues: list[EventQueue] | None = None) -> None:
        """Send the policy's state to every queue that wants snapshots."""
        wanting = [queue for queue in queues or self._queues if queue.snapshots]
        if not wanting:
            return
        for queue in wanting:
            queue.snapshot_wanted = False
        policy = self._policy()
        try:
            state = policy.state()
        except Exception as error:
            self._failed(error)
            return
        event = SnapshotEvent(self._next(), policy.name, state)
        for queue in wanting:
            queue.put(event)

    def _start(self, queues: list[EventQueue]) -> None:
        if not queues:
            return
        version, config = self._config()
        event = ConfigEvent(self._next(), version, config)
        for queue in queues:
            queue.put(event)
        self.snapshot(queues)

    def _next(self) -> int:
        self._seq += 1
        return self._seq
