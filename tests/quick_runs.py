"""Recipes made quick: three steps of a tiny model."""

from clearhead.recipes import load_run
from clearhead.recipes.settings import RunConfig, with_overrides

TINY = {
    "transformer": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "mbart": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "bart": ["model.d_model=16", "model.encoder_ffn_dim=24", "model.decoder_ffn_dim=24"],
    "gpt2": ["model.n_embd=16", "model.n_layer=2"],
    "bert": ["model.hidden_size=16", "model.intermediate_size=24", "model.num_hidden_layers=1"],
}
QUICK = ["train.steps=3", "train.valid_every=3", "train.save_every=2", "tokenizer.vocab=300"]


def quick(recipe: str, *words: str) -> RunConfig:
    """Three steps of a tiny model; they leave no room for the warm-up that every recipe has."""
    run = load_run(recipe)
    return with_overrides(run, [*TINY[str(run.model["family"])], *QUICK, "train.schedule.warmup=1", *words])
