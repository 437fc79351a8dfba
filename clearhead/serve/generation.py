"""Generation requests: a bundle and a request in; a decoding loop to iterate over out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..bundle import Bundle, text_generator
from ..generate import Decoding

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]


class GenerateRequest(BaseModel):
    """How to decode. `forced` are the first new tokens, set by the user; the model generates the rest."""

    model: str = Field(min_length=1, max_length=120)
    text: str = Field(min_length=1, max_length=100_000)
    strategy: Literal["greedy", "sample", "beam"] = "greedy"
    max_new: int = Field(default=64, ge=1, le=512)
    temperature: float = Field(default=1.0, gt=0, le=100)
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    repetition: float = Field(default=1.0, gt=0, le=10)
    seed: int = Field(default=0, ge=0, le=2**31)
    beams: int = Field(default=4, ge=2, le=16)
    length_penalty: float = Field(default=1.0, ge=-5, le=5)
    forced: list[TokenId] = Field(default=[], max_length=512)
    chat: bool = False  # the text is a message; the checkpoint's template writes the prompt

    def generation_settings(self) -> dict[str, Any]:
        """The settings as arguments of `Bundle.generate`; only those that the strategy uses."""
        settings: dict[str, Any] = {"max_new_tokens": self.max_new, "begin": self.forced, "do_sample": False}
        if self.strategy == "beam":
            beams = {"num_beams": self.beams, "num_return_sequences": self.beams}
            return {**settings, **beams, "length_penalty": self.length_penalty}
        # Set explicitly: the checkpoint may have other defaults.
        settings |= {"num_beams": 1, "repetition_penalty": self.repetition}
        if self.strategy == "sample":
            sampling = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
            settings |= {"do_sample": True, "seed": self.seed, **sampling}
        return settings


def start_decoding(bundle: Bundle, request: GenerateRequest, *, record: bool = False) -> Decoding:
    """Encode the prompt and start decoding; `record` keeps the nodes of a beam search."""
    generator = text_generator(bundle, request.generation_settings())
    alternatives = 0 if request.strategy == "beam" else 10
    prompt = as_chat(request.text) if request.chat else request.text
    return generator.decode(generator.encode_prompts([prompt]), alternatives=alternatives, record=record)


def as_chat(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]
