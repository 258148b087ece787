"""`cpbcg ladder`: which batches the captured graphs cannot run, and which buckets would."""

from typing import Any

import click

from cpbcg_ref.commands.shared import AT_LEAST_1, JSON, deliver, integers


@click.command(short_help="Which batches does a capture ladder run eager?")
@click.option("--cp-size", type=int, required=True, metavar="N", help="Ranks of the context-parallel group.")
@click.option("--capture", required=True, metavar="B,B,...", help="Buckets in tokens.")
@click.option("--context-length", type=int, default=131072, show_default=True, metavar="L", help="Longest request.")
@click.option("--max-padding-factor", type=float, default=2, show_default=True, metavar="F", help="Bucket over tokens.")
@click.option("--max-requests", type=AT_LEAST_1, metavar="K", help="Most of a batch.  [default: any]")
@click.option("--max-tokens", type=AT_LEAST_1, metavar="T", help="Most to serve.  [default: largest bucket / F]")
@click.option("--strategy", default="zigzag", show_default=True, help="zigzag or interleave.")
@JSON
def ladder(capture: str, json_file: str | None, **options: Any) -> int:
    """Of which totals (tokens of a batch) can a batch fall back to eager, and which ladder leaves none?

    \b
    cpbcg ladder --cp-size 4 --capture 1024,1536,3072
    cpbcg ladder --cp-size 4 --capture 1024,1536,3072 --max-tokens 3072 --json -

    Exact, for every batch whose requests are long enough to be sharded (2 x N, zigzag) and within the context. A total
    falls back for its tokens if no bucket is in [T, F x T], for its rows if none of those has the rows that some batch
    needs. Totals that the ladder is meant to serve end at the largest bucket / F unless --max-tokens says otherwise:
    larger batches can need more rows than any bucket has. Above the largest bucket every batch falls back.

    Buckets have the rows that the reference captures for them; an engine that splits a bucket otherwise has others.

    Exit code: 1 some total to serve can fall back; 2 bad usage; 0.
    """
    from cpbcg_ref.ladder import analyse_ladder
    from cpbcg_ref.report import ladder as report

    found = analyse_ladder(integers("--capture", capture, ","), **options)
    deliver(report.show, report.document(found), json_file)
    return int(found.can_fall_back)
