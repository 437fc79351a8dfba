"""Arguments under the names of transformers in, under our own out; what has no counterpart is one line.

The model itself knows one set of names; this is the only place that knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError

# Arguments of transformers for outputs that other calls give here.
NOT_HERE = {
    "output_hidden_states": "bundle.trace(text).hidden(layer) or a clearhead.nn.Recorder gives them",
    "output_attentions": "bundle.trace(text).attention(layer=0) gives attention weights",
    "return_dict": "a model returns one tensor; leave it out",
    "labels": "a model computes no loss; clearhead.tasks has losses",
    "past_key_values": "give cache=model.cache()",
    "use_cache": "give cache=model.cache()",
    "position_ids": "positions follow from the mask; leave it out",
    "inputs_embeds": "a model takes ids",
    "head_mask": "bundle.without('head:3.7') switches heads off",
    "encoder_outputs": "model.decode(ids, encoder_output) takes what model.encode gives",
    "decoder_inputs_embeds": "a model takes ids",
    "global_attention_mask": "give mask=clearhead.nn.mask_adapters.from_global_attention_mask(mask)",
    "logits_to_keep": "logits are given for all tokens; cut them",
}


def own_names(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The options of `states`; `names` are those of transformers that this model has."""
    found = {}
    for name, value in options.items():
        if name in NOT_HERE:
            if value is not None and value is not False:  # switched on
                raise InputError(f"{name} is an argument of transformers; here {NOT_HERE[name]}")
            continue
        if name in ("token_type_ids", "decoder_input_ids") and name not in names:
            raise InputError(f"this model takes no {name}; leave it out")
        found[names.get(name, name)] = value
    return found
