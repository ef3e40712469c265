"""What became of the runs whose process stood still for longer than staleness: an account of its own."""

from __future__ import annotations

from collections.abc import Iterable

from tests.soak.account import Account, Runs
from tests.soak.history import History
from tests.soak.nemesis import Freeze


def check_freezes(
    account: Account, freezes: Iterable[Freeze], histories: dict[int, History], runs: Runs
) -> None:
    """Figures only. That a late end changes nothing is required of every job by its history."""
    frozen = rescued = again = late = 0
    for freeze in freezes:
        for (job_id, lease), run in runs.items():
            started_at = min(run.starts, default=freeze.until)
            was_through = run.ended_at is not None and run.ended_at < freeze.since
            if job_id not in histories or not run.pids & freeze.pids:
                continue
            if started_at >= freeze.since or was_through:
                continue
            end = histories[job_id].lease_end(lease)
            if end is None or end.at < freeze.since:  # cancelled, or rescued for another reason
                continue
            frozen += 1
            if end.at > freeze.until or end.is_now not in ("retryable", "failed"):
                continue
            rescued += 1
            again += any(
                other_id == job_id and other_lease > lease and not other.pids & freeze.pids
                for (other_id, other_lease), other in runs.items()
            )
            late += run.ended_at is not None and run.ended_at > end.at
    account.figures |= {
        "runs frozen in their middle": frozen,
        "of these rescued before they went on": rescued,
        "of these run again by another process": again,
        "of these ended later all the same, refused": late,
    }
