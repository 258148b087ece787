"""A right dispatcher in the most naive way, for tests to break. Shares no code with the library."""

from dataclasses import replace

from cpbcg_ref.answers import Graph
from cpbcg_ref.engines.contract import Contract, Dispatcher


class Toy:
    """Two setups: graphs for decodes and graphs in pieces; or one kind, for decodes or for steps with prefills."""

    name, version, roots = "toy dispatcher", "1", (__file__,)
    contract = Contract(
        dispatchers={
            "two": Dispatcher(modes=("FULL", "PIECEWISE"), choosable=True, tokens_per_decode=(1, 3, 2)),
            "one": Dispatcher(even=True),
        }
    )

    def start_dispatcher(self, case):
        return Started(self, case)

    def capture(self, case):
        sizes, each = case.capture_num_tokens, case.tokens_per_decode
        if case.setup == "one":
            decodes = [Graph(num_tokens=n, num_requests=n, num_decodes=n, num_prefills=0) for n in sizes]
            return decodes + [Graph(num_tokens=n, num_requests=n, needs_prefill=True) for n in sizes]
        pieces = [Graph(mode="PIECEWISE", num_tokens=size) for size in sizes]
        counts = sorted({-(-size // each) for size in sizes if -(-size // each) <= case.max_requests})
        return pieces + [
            Graph(mode="FULL", num_tokens=n * each, num_requests=n, num_prefills=0, tokens_per_request=each)
            for n in counts
        ]

    def able(self, graph, step, size, case):
        """Can this graph run the step, padded to `size` tokens."""
        if graph.num_tokens < size:
            return False
        if case.setup == "one":
            return graph.needs_prefill == bool(step.prefills) and graph.num_requests >= step.decodes + len(
                step.prefills
            )
        return graph.mode == "PIECEWISE" or (not step.prefills and step.decodes <= graph.num_requests)

    def tried(self, graphs):
        return sorted({graph.num_tokens for graph in graphs})

    def choose(self, graphs, case, unwanted):
        """The graph of every rank: of the best mode in which all have one of the same size, the smallest such."""
        sizes = [step.decodes * case.tokens_per_decode + sum(step.prefills) for step in case.ranks]
        for mode in self.contract.dispatchers[case.setup].modes:
            for size in self.tried(graphs):
                each = [
                    [
                        g
                        for g in graphs
                        if (g.mode, g.num_tokens) == (mode, size) and self.able(g, step, max(sizes), case)
                    ]
                    for step in case.ranks
                ]
                if mode not in unwanted and all(each):
                    return [able[0] for able in each]
        return [None for _ in case.ranks]


class Started:
    def __init__(self, toy, case):
        self.toy, self.case, self.graphs = toy, case, toy.capture(case)

    def captured(self):
        return self.graphs

    def modes(self, names, *, eager):
        return {*names, "NONE"} if eager else set(names)

    def dispatch(self, *, allowed=None, excluded=None):
        assert "NONE" in (allowed or {"NONE"})
        assert "NONE" not in (excluded or ())
        unwanted = set(excluded or ()) | ({"FULL", "PIECEWISE"} - allowed if allowed else set())
        return self.toy.choose(self.graphs, self.case, unwanted)


class OfOneKind(Toy):
    """Right too: every graph runs any step that has no more tokens."""

    contract = Contract(dispatchers={"plain": Dispatcher(limits=False)})

    def capture(self, case):
        return [Graph(num_tokens=size) for size in case.capture_num_tokens]

    def able(self, graph, step, size, case):
        return graph.num_tokens >= size


class OneTooSmall(Toy):
    """Compares with one token less than there are."""

    def able(self, graph, step, size, case):
        return super().able(graph, step, size - 1, case)


class BlindToKind(Toy):
    """Looks at tokens alone."""

    def able(self, graph, step, size, case):
        return graph.num_tokens >= size


class DeafToTheCaller(Toy):
    """Does not hear which modes the caller rules out."""

    def choose(self, graphs, case, unwanted):
        return super().choose(graphs, case, set())


class Inventive(Toy):
    """Answers with a graph that nobody captured."""

    def choose(self, graphs, case, unwanted):
        return [
            graph and replace(graph, num_tokens=graph.num_tokens + 1)
            for graph in super().choose(graphs, case, unwanted)
        ]


class Largest(Toy):
    """Takes the largest graph that fits."""

    def tried(self, graphs):
        return super().tried(graphs)[::-1]


class TooCareful(Toy):
    """Wants room for one token more than there are."""

    def able(self, graph, step, size, case):
        return super().able(graph, step, size + 1, case)


class FewestTokens(Toy):
    """Tries the modes in the wrong order."""

    def choose(self, graphs, case, unwanted):
        pieces = super().choose(graphs, case, {*unwanted, "FULL"})
        return pieces if pieces[0] else super().choose(graphs, case, unwanted)


class EachForItself(Toy):
    """Ranks know nothing of each other."""

    def choose(self, graphs, case, unwanted):
        alone = [replace(case, ranks=(step,)) for step in case.ranks]
        return [super(EachForItself, self).choose(graphs, one, unwanted)[0] for one in alone]


class EagerWithPrefills(Toy):
    """A rank with a prefill runs eager, whatever the others do."""

    def choose(self, graphs, case, unwanted):
        chosen = super().choose(graphs, case, unwanted)
        return [None if step.prefills else graph for step, graph in zip(case.ranks, chosen, strict=True)]


class Taking(Toy):
    """Takes what is ruled out from what is allowed, in place."""

    def start_dispatcher(self, case):
        return TakingStarted(self, case)


class TakingStarted(Started):
    def dispatch(self, *, allowed=None, excluded=None):
        if allowed and excluded:
            allowed -= excluded
        return super().dispatch(allowed=allowed, excluded=excluded)


class Forgetful(Toy):
    """Runs eager when it is asked again."""

    def start_dispatcher(self, case):
        return ForgetfulStarted(self, case)


class ForgetfulStarted(Started):
    def dispatch(self, **modes):
        chosen, self.graphs = super().dispatch(**modes), []
        return chosen

    def captured(self):
        return self.toy.capture(self.case)
