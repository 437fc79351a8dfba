"""Which tokens of an encoder output the tokens of a decoder may attend to: the view of cross-attention.

Shape suffixes: B batch, K tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from .context import States
from .masks import CrossDocuments, Everyone, Mask, Padding
from .view import View
from .virtual_masks import BehindLead


def encoder_view(view: View, segment_BK: Tensor | None, encoder_output: States, lead: int = 0) -> View:
    """The view of cross-attention: every real token of the encoder output, or of the same packed text.

    `lead` virtual tokens come before the encoder output.
    """
    rows, keys = encoder_output.x_BTD.shape[:2]
    if rows * encoder_output.rows_per_source != view.batch:
        shared = (
            ""
            if encoder_output.rows_per_source == 1
            else f", shared by {encoder_output.rows_per_source} each"
        )
        raise InputError(
            f"the encoder output has {rows} rows{shared}, the target {view.batch}; each needs its own source"
        )
    source_segment_BK = encoder_output.segment_BT
    rule: Mask = Everyone()
    if source_segment_BK is not None:
        rule = Padding(source_segment_BK >= 0)
        if segment_BK is not None and int(segment_BK.max()) > 0:  # several texts in a row
            if encoder_output.rows_per_source > 1:
                raise InputError("packed texts cannot share a source; give each row its own")
            rule = CrossDocuments(segment_BK, source_segment_BK)
    if lead:
        rule = rule if isinstance(rule, Everyone) else BehindLead(rule, lead)
    k_pos = torch.arange(lead + keys, device=view.q_pos.device)[None]
    # Rows that share a source are further queries of it: see CrossAttention.
    q_pos = (
        view.q_pos
        if encoder_output.rows_per_source == 1
        else view.q_pos.expand(view.batch, -1).reshape(rows, -1)
    )
    return View(rule, rows, q_pos, k_pos, view.start, is_cross=True)
