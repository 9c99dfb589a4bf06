"""What can be done to a workload as it is now: the verb, why it cannot be, and what it does, said with facts. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.base.units import show_counted
from remuda.plan.kinds import Kind
from remuda.supervise.model import LIVE, Phase

if TYPE_CHECKING:
    from remuda.views.workloads import WorkloadView


@dataclass(frozen=True)
class Action:
    """One verb, and what it does: a sentence without a subject."""

    verb: str
    effect: str
    why_not: str = ""
    """Why it cannot be done now; empty where it can."""
    confirm: str = ""
    """What a user is asked for first: `yes`, or `name`, which is typed; empty: nothing."""

    @property
    def enabled(self) -> bool:
        """Whether it can be done now."""
        return not self.why_not


def actions(view: WorkloadView) -> list[Action]:
    """All verbs of a workload."""
    traits, live = Kind(view.kind).traits, _live(view)
    why_no_pause = no_pause(view.phase, "paused") or "paused" * view.paused
    why_not_on = no_pause(view.phase, "unpaused") if view.paused else "not paused"
    is_stopped = traits.is_restarted_whole and bool(live)
    again = f"stops {live}, and starts all of it again" if is_stopped else "starts again what ended"
    found = [
        ("down", f"stops {live or 'nothing'}", "down" if view.phase == "DOWN" else "", "yes" if live else ""),
        ("restart", again, "", "yes" if is_stopped else ""),
        ("pause", "leaves alone what runs, and starts nothing new", why_no_pause, ""),
        ("unpause", "starts again what ends", why_not_on, ""),
        ("scale", f"changes their number, {view.wanted} now", "" if traits.resized_by else f"a {view.kind}", ""),
        ("remove", f"deletes its record and {view.run_dir}", "" if view.phase == "DOWN" else "not down", "name"),
    ]
    return [Action(verb, does, f"it is {why}" if why else "", confirm) for verb, does, why, confirm in found]


def no_pause(phase: str, word: str) -> str:
    """Why what is in that phase cannot be `paused`, or `unpaused`; empty where it can."""
    return f"{phase} and cannot be {word}" if phase in ("DONE", "FAILED", "STOPPED", "DOWN", "STOPPING") else ""


def cleaning(allocations: int, secrets: int) -> Action:
    """The end of leftovers, and of the secrets of what is gone."""
    what = [f"end {show_counted(allocations, 'allocation')}"] if allocations else []
    what += [f"remove {show_counted(secrets, 'folder')} of secrets"] if secrets else []
    return Action("clean", " and ".join(what), "" if what else "nothing is left", "yes")


def _live(view: WorkloadView) -> str:
    """What of it runs, and what that has under way."""
    roles = Counter(task.role for task in view.tasks if Phase(task.phase) in LIVE)
    parts = ", ".join(show_counted(count, role) for role, count in roles.items())
    asked = round(view.load.get("running", 0.0) + view.load.get("waiting", 0.0))
    return f"{parts}; {show_counted(asked, 'request', 'is', 'are')} in flight" if parts and asked else parts
