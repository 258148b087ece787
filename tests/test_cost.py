"""What a decision costs, in steps of the interpreter: the same on every machine, so that a slope is a slope."""

import sys

import pytest

from cpbcg_ref import CaptureTable, can_run_graph, required_local_tokens


def instructions(call):
    """Instructions of Python code that the call executes; loops in C, such as sum, count as one."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(former)
    return count


def rows(requests, cp_size):
    return instructions(lambda: required_local_tokens([9] * requests, cp_size=cp_size))


def decision(requests, cp_size):
    table = CaptureTable(ladder=(16 * requests * cp_size,), cp_size=cp_size, context_length=4096)
    lengths = [16 * cp_size] * requests
    assert can_run_graph(lengths, num_tokens=sum(lengths), table=table)
    return instructions(lambda: can_run_graph(lengths, num_tokens=sum(lengths), table=table))


@pytest.mark.parametrize("cost", [rows, decision])
def test_another_request_costs_the_same_however_many_there_are(cost):
    few, more, many = (cost(requests, 8) for requests in (16, 32, 64))
    assert many - more == 2 * (more - few) > 0


@pytest.mark.parametrize("cost", [rows, decision])
def test_another_rank_costs_the_same_however_many_there_are(cost):
    few, more, many = (cost(16, cp_size) for cp_size in (4, 8, 16))
    assert many - more == 2 * (more - few) > 0


@pytest.mark.parametrize("cost", [rows, decision])
def test_requests_and_ranks_add_up_and_do_not_multiply(cost):
    assert cost(64, 16) - cost(16, 16) == cost(64, 4) - cost(16, 4)
