raise RuntimeError("only single modules of the package are executed")
