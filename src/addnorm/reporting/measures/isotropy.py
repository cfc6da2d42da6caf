"""Mean direction of queries: 0 if they are isotropic, 1 if all have one direction."""

from addnorm.reporting.measure import LayerMeasure


class Isotropy(LayerMeasure):
    """See the module."""

    order = 58
    key = "query_direction"
    caption = "Norm of the mean direction of the queries."
    panel_title = "Mean direction of queries"
    axis_label = "norm of the queries' mean direction"
    columns = {"query_direction": "q dir"}
    legend = "q dir: norm of the mean direction of queries"
