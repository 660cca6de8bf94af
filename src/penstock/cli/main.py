"""Commands and their options; each one parses and calls one function."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import click

from penstock import __version__
from penstock.datastream.stream_execution_environment import plans_instead_of_runs
from penstock.errors import PenstockError
from penstock.graph.plan import Plan
from penstock.graph.render import render_json, render_mermaid, render_text


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Flink-style stateful streaming on Spark."""


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "output", flag_value="json", help="Print the plan as JSON.")
@click.option("--mermaid", "output", flag_value="mermaid", help="Print the plan as a drawing.")
@click.option("--text", "output", flag_value="text", default="text", hidden=True)
def explain(job: Path, args: tuple[str, ...], output: str) -> None:
    """Show stages, channels, chains and parallelism of JOB without running its jobs.

    The program itself runs, up to and beyond each execute(), which only takes note of the plan.
    """
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
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(job), *args]
    sys.path.insert(0, str(job.resolve().parent))
    try:
        with plans_instead_of_runs(plans.append):
            runpy.run_path(str(job), run_name="__main__")
    except PenstockError as error:
        raise click.ClickException(str(error)) from error
    finally:
        sys.argv, sys.path[:] = argv, path
    return plans


if __name__ == "__main__":
    main()
