"""What engines lack that are no server with a prefill delayer: the reasons for skips that several of them share."""

NO_DELAYER = dict.fromkeys(("negotiation", "attempts", "votes"), "its ranks negotiate no delay of prefills")
NO_GRAPHS = dict.fromkeys(
    ("captured-rows", "capacity", "selection", "replay", "dispatch", "data"),
    "no CUDA graphs are captured for the batches that it shards",
)
GRAPHS_FOR_STEPS = dict.fromkeys(
    ("capacity", "selection", "replay"),
    "it chooses a graph for a step of decodes and prefills, not a bucket for a batch of prefills",
)
GRAPHS_FOR_STEPS |= {"data": "the model is not run: only its choice of graphs is asked"}
NO_COUNTS = {"rows": "it does not say how many rows a rank owns"}
