"""The commands of `cpbcg`, a file per group: parse, call, render."""
