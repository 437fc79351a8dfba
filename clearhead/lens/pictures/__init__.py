"""Pictures: numbers and words in; figures out that are saved as .png, .svg or .pdf, or show themselves."""

from .architecture import architecture
from .bars import bars
from .canvas import Picture, chinese_font
from .growth import growth
from .guesses import guess_table
from .heat import head_grid, heat_map, side_by_side, table_of_heads
from .links import aligned, arcs, bipartite
from .positions import position_picture
from .training import curves, gradient_strip
from .tree import beam_tree

__all__ = [
    "Picture", "chinese_font", "heat_map", "side_by_side", "head_grid", "table_of_heads", "arcs",
    "bipartite", "aligned", "beam_tree", "guess_table", "position_picture", "curves", "gradient_strip",
    "architecture",
    # for the other packages
    "bars", "growth",
]  # fmt: skip
