"""The command line `ghostless`. Each verb is a module that is imported only when the verb is used."""

import click

from .lazy import LazyGroup, Verb

VERBS = {
    "Tasks": {
        "submit": Verb("submit:submit", "Accept a task and print its id."),
        "status": Verb("show:status", "Show one task: its state, and what happens next."),
        "explain": Verb("show:explain", "Say why a task is where it is, and what happens next."),
        "list": Verb("show:list_tasks", "List tasks, the latest change first."),
        "history": Verb("show:history", "Show every move of a task."),
        "log": Verb("show:show_log", "Show what the handler of a task printed."),
        "deliveries": Verb("deliveries:deliveries", "Show what was told to the callback of a task; tell it again."),
        "cancel": Verb("act:cancel", "Cancel a task, running or not."),
        "pause": Verb("act:pause", "Pause a task; a running one stops at its next checkpoint."),
        "resume": Verb("act:resume", "Let a paused task go on."),
        "retry": Verb("act:retry", "Give a failed or given-up task another life."),
        "bulk": Verb("bulk:bulk", "Cancel, pause, resume or retry many tasks at once."),
    },
    "Overview": {
        "stats": Verb("overview:stats", "Count the tasks in each state."),
        "queues": Verb("overview:queues", "List the queues; pause and resume them."),
        "workers": Verb("workers:workers", "List the workers and what they do; show one in detail."),
        "types": Verb("types:types", "List the task types; publish them."),
        "schedules": Verb("schedules:schedules", "List the schedules; add, pause and remove them."),
        "tokens": Verb("tokens:tokens", "List the tokens of the HTTP API; add and revoke them."),
        "doctor": Verb("doctor:doctor", "Look for anything that is not as it must be, and repair it."),
        "archive": Verb("archive:archive", "Write tasks to files before they are purged; show one."),
        "listeners": Verb(
            "listeners:listeners", "List what listens to the history, and what is parked; try that again."
        ),
        "diagram": Verb("diagram:diagram", "Print the state machine as a diagram."),
    },
    "Processes": {
        "worker": Verb("worker:worker", "Run tasks from queues."),
        "watchdog": Verb("watchdog:watchdog", "Move what would otherwise stand still."),
        "scheduler": Verb("scheduler:scheduler", "Submit tasks when their schedules are due."),
        "listener": Verb("listener:listener", "Call handlers for what happened to tasks: alerts and the like."),
        "health": Verb("health:health", "Ask a worker for its health."),
        "serve": Verb("serve:serve", "Serve the HTTP API."),
    },
    "To try it out": {
        "demo": Verb("demo:demo", "Paint six pictures and watch them, one cancelled, one retried."),
        "dev": Verb("dev:dev", "Run everything here: Redis, watchdog, worker, web."),
    },
}
"""Every verb by its section, in the order of --help."""


@click.group(
    cls=LazyGroup,
    sections=VERBS,
    package=__name__,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 Redis not reachable.",
)
@click.option("--redis-url", metavar="URL", help="Redis to use; else GHOSTLESS_REDIS_URL.")
@click.option("--prefix", metavar="TEXT", help="Start of every key; else GHOSTLESS_PREFIX.")
@click.version_option(package_name="ghostless", prog_name="ghostless")
def main(redis_url: str | None, prefix: str | None) -> None:
    """Run long tasks on Redis, and always know what became of each.

    \b
    Example: ghostless submit image.generate -p prompt="a lighthouse at dusk" --wait
    """
