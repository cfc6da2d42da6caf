"""The numerical method: null directions measured by moving the parameters, independent of the graph."""
