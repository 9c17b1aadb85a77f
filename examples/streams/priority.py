"""A queue by priority: jobs wait in a store, and the most urgent ones leave first, so many each second.

    barnabas streams run priority:app

A job is JSON like {"id": "j1", "priority": 5}; a higher number is more urgent.
"""

from dataclasses import dataclass

from barnabas.streams import App, Context, Processor, Record

AT_ONCE = 2


@dataclass
class Job:
    id: str
    priority: int


class ByPriority(Processor[str, Job]):
    """Keeps jobs, and lets the most urgent ones go when it is called."""

    def init(self, context: Context) -> None:
        self.waiting = context.store("waiting")
        context.schedule("1 second", "wall_clock", self.release)

    def process(self, record: Record[str, Job]) -> None:
        job = record.value
        # Sorted by key: the most urgent first, and of equals the one that came first.
        self.waiting[(-job.priority, record.timestamp, job.id)] = job

    def release(self, now: int) -> None:
        for place, job in list(self.waiting.range((-(10**9), 0, ""), (10**9, 0, "")))[:AT_ONCE]:
            del self.waiting[place]
            self.context.forward(job.id, job, timestamp=now)


app = App("priority", tasks=1)
app.add_state_store("waiting")
app.stream("jobs", value=Job).process(ByPriority, stores="waiting", wall_clock=True).to("jobs-by-priority")
