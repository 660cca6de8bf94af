"""The command `penstock`: its commands, and how their errors end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from penstock import __version__
from penstock.cli.channels import channels
from penstock.cli.exit_codes import EXIT_CODES, ExitCode, exit_code_of
from penstock.cli.history import checkpoints
from penstock.cli.inspect import inspect_snapshot
from penstock.cli.jobs import list_jobs
from penstock.cli.metrics import metrics
from penstock.cli.program import pyflink_option, run_program
from penstock.cli.requests import cancel, savepoint, stop, trigger
from penstock.cli.run import run
from penstock.common.pyflink_names import use_pyflink_names
from penstock.datastream.stream_execution_environment import plans_instead_of_runs
from penstock.errors import PenstockError
from penstock.graph.plan import Plan
from penstock.graph.render import render_json, render_mermaid, render_text

__all__ = ["main", "plans_of"]


class _Commands(click.Group):
    """Ends with one sentence and the right code, however a command fails."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(exit_code_of(error))
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES
)
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Flink-style stateful streaming on Spark."""


@main.group()
def checkpoint() -> None:
    """Trigger a checkpoint, or look into one."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "output", flag_value="json", help="Print the plan as JSON.")
@click.option("--mermaid", "output", flag_value="mermaid", help="Print the plan as a drawing.")
@click.option("--text", "output", flag_value="text", default="text", hidden=True)
@pyflink_option
def explain(job: Path, args: tuple[str, ...], output: str, pyflink: bool) -> None:
    """Show stages, channels, chains and parallelism of JOB without running its jobs.

    The program itself runs, up to and beyond each execute(), which only takes note of the plan.
    """
    if pyflink:
        use_pyflink_names()
    plans = plans_of(job, args)
    if not plans:
        msg = f"{job} executes no job: it never calls execute()"
        raise click.ClickException(msg)
    if output == "json":
        click.echo(json.dumps([render_json(p) for p in plans], indent=2))
        return
    render = render_mermaid if output == "mermaid" else render_text
    click.echo("\n\n".join(render(p) for p in plans))


def plans_of(job: Path, args: tuple[str, ...]) -> list[Plan]:
    """Run a program up to each execute() and return what it would have run."""
    plans: list[Plan] = []
    with plans_instead_of_runs(plans.append):
        run_program(job, args)
    return plans


for command in (run, list_jobs, stop, cancel, savepoint, checkpoints, channels, metrics):
    main.add_command(command)
for command in (trigger, inspect_snapshot):
    checkpoint.add_command(command)


if __name__ == "__main__":
    main()
