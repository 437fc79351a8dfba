"""Translators between many languages: their language tokens, as the tokenizers of transformers place them."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from references import TINY

import clearhead as ch
from clearhead.errors import InputError
from clearhead.text import Tokenizer, language_tokens

VOCABULARY = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "▁": 4, "a": 5, "b": 6, "▁a": 7}


def nllb() -> Any:
    return transformers.NllbTokenizer(vocab=VOCABULARY, merges=[("▁", "a")], src_lang="eng_Latn")


def mbart50() -> Any:
    scored = [(word, -float(i)) for word, i in VOCABULARY.items()]
    return transformers.MBart50Tokenizer(vocab=scored, src_lang="en_XX")


@pytest.fixture(params=[nllb, mbart50], ids=["nllb", "mbart-50"])
def translator(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, ch.Bundle]:
    """The tokenizer of transformers, and a tiny model of ours with its files."""
    theirs = request.param()
    theirs.save_pretrained(tmp_path)
    family = ch.families.FAMILIES["m2m_100"]
    sizes = {key: value for key, value in TINY.items() if key in family.defaults}
    bundle = ch.build("m2m_100", **sizes | {"vocab_size": len(theirs)})
    bundle.tokenizer = Tokenizer.read(tmp_path)
    return theirs, bundle


def languages(theirs: Any) -> tuple[str, str]:
    return ("fra_Latn", "deu_Latn") if "fra_Latn" in theirs.get_vocab() else ("fr_XX", "de_DE")


def test_source_and_target_are_marked_as_transformers_marks_them(translator: tuple[Any, ch.Bundle]) -> None:
    theirs, bundle = translator
    french, german = languages(theirs)
    theirs.src_lang = french
    assert any("no target language" in note for note in ch.bundle.text_generator(bundle, {}).notes)
    generator = ch.bundle.text_generator(bundle, {"source_language": french, "target_language": german})
    assert not generator.notes
    assert generator.encode_prompts(["a b a"]) == [theirs("a b a").input_ids]
    assert generator.settings.forced_bos_token_id == theirs.convert_tokens_to_ids(german)
    text = bundle.generate("a b", target_language=german, max_new_tokens=3, eos_token_id=[])
    assert text == bundle.generate(
        "a b",
        forced_bos_token_id=theirs.convert_tokens_to_ids(german),
        max_new_tokens=3,
        eos_token_id=[],
    )
    assert len(language_tokens(bundle.tokenizer)) > 50


def test_a_code_alone_names_a_language_where_it_is_one_token(translator: tuple[Any, ch.Bundle]) -> None:
    theirs, bundle = translator
    french, _ = languages(theirs)
    generator = ch.bundle.text_generator(bundle, {"target_language": french.split("_")[0]})
    assert generator.settings.forced_bos_token_id == theirs.convert_tokens_to_ids(french)


@pytest.mark.parametrize("word", ["fre_Latn", "zho", "xx", "a"])
def test_an_unknown_language_is_one_line_with_the_nearest(
    translator: tuple[Any, ch.Bundle], word: str
) -> None:
    """In NLLB `zho` is two tokens, simplified and traditional; elsewhere there is none."""
    with pytest.raises(InputError, match=f"no language of this model is called '{word}'"):
        translator[1].generate("a b", target_language=word)


def test_a_model_without_languages_says_so(tmp_path: Path) -> None:
    bundle = ch.build("bart", **{k: v for k, v in TINY.items() if k in ch.families.FAMILIES["bart"].defaults})
    with pytest.raises(InputError, match="languages are for translators with language tokens"):
        bundle.generate_ids([[5, 6]], target_language="fr")
