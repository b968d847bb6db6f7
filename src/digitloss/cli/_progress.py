"""The progress of a long command: a bar in a terminal, a line every five percent elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextlib.contextmanager
def shown_progress(console: Console) -> Iterator[Callable[[str, float], None]]:
    """Yield what is called with what is going on and the share that is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("gone"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("starting", total=1.0)
        printed = -1

        def show(what: str, share: float) -> None:
            nonlocal printed
            progress.update(bar, description=what, completed=share)
            if not console.is_terminal and int(20 * share) > printed:
                printed = int(20 * share)
                console.print(f"{share:4.0%}  {what}", soft_wrap=True, highlight=False)

        yield show
