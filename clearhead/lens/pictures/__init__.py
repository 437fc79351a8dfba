"""Pictures: numbers and labels in; figures for files (.png, .svg, .pdf) and notebooks out."""

from .architecture import architecture
from .benchmarks import bars, growth
from .canvas import Picture, chinese_font
from .comparison import draw_comparison
from .evaluation import EvaluationView, WorstRow, draw_evaluation
from .experts import expert_map
from .heat import head_grid, heat_map, logit_lens_table, side_by_side, table_of_heads
from .links import aligned, arcs, bipartite
from .positions import position_picture
from .training import curves, gradient_strip
from .tree import beam_tree

__all__ = [
    "Picture", "chinese_font", "heat_map", "side_by_side", "head_grid", "table_of_heads", "arcs",
    "bipartite", "aligned", "beam_tree", "logit_lens_table", "position_picture", "curves", "gradient_strip",
    "architecture", "expert_map",
    # for the other packages
    "bars", "growth", "EvaluationView", "WorstRow", "draw_evaluation",
    "draw_comparison",
]  # fmt: skip
