"""How to use a trained model: its head in; the pipeline tag of the Hub, a command and Python code out.

The code runs as printed from the folder above the model's; tests execute it.
"""

from __future__ import annotations

from json import dumps
from shlex import quote

from ..bundle import Bundle, is_peft
from .settings import RunConfig

TAGS = {
    "labels": "text-classification",
    "tags": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "hidden": "sentence-similarity",
    "encoder": "sentence-similarity",
    "pretrain": "fill-mask",
}

PEFT_MODEL = """from peft import PeftModel
from transformers import {auto}, AutoTokenizer

base = {auto}.from_pretrained({base}{options})
model = PeftModel.from_pretrained(base, {name}).eval()
inputs = AutoTokenizer.from_pretrained({name})({text}, return_tensors="pt", return_token_type_ids=False)
print({use})"""
AUTO_CLASSES = {
    "labels": "AutoModelForSequenceClassification", "tags": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering", "hidden": "AutoModel",
}  # fmt: skip

PIPELINE = """from transformers import pipeline

model = pipeline({tag}, model={name}{options})
print(model({example}))"""
SEQ2SEQ = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForSeq2SeqLM.from_pretrained({name})
ids = model.generate(**tokenizer({text}, return_tensors="pt", return_token_type_ids=False))
print(tokenizer.decode(ids[0], skip_special_tokens=True))"""
SPAN = """from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForQuestionAnswering.from_pretrained({name})
inputs = tokenizer("a question", "a text with the answer", return_tensors="pt")
output = model(**inputs)
first, last = output.start_logits.argmax(), output.end_logits.argmax()
print(tokenizer.decode(inputs.input_ids[0, first : last + 1]))"""
CHOICE = """from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForMultipleChoice.from_pretrained({name})
choices = ["one answer", "another answer"]
inputs = tokenizer(["a question"] * len(choices), choices, padding=True, return_tensors="pt")
scores = model(**{{key: value[None] for key, value in inputs.items()}}).logits
print(choices[scores[0].argmax()])"""
SENTENCE_VECTORS = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer({name})
vectors = model.encode(["a text", "another text"])
print(model.similarity(vectors, vectors))"""


def pipeline_tag(bundle: Bundle, task: str) -> str | None:
    """The Hub's name for what the model does; None for a model that is a start for fine-tuning."""
    if task in ("denoise", "spans"):
        return None
    if bundle.task in TAGS:
        return TAGS[bundle.task]
    if bundle.spec.is_encoder_decoder:
        return "text2text-generation"
    return "text-generation" if bundle.spec.generates else "fill-mask"


def command_line(bundle: Bundle, task: str, name: str, *, pairs: bool = False) -> str:
    """The command that uses a model of this kind; `pairs`: it reads two texts."""
    folder = quote(name)
    if bundle.task in ("hidden", "encoder"):
        return f'clearhead embed {folder} texts.txt --search "a text"'
    if bundle.task == "span":
        return f'clearhead predict {folder} "a question" --context "a text with the answer"'
    if bundle.task == "choice":
        return f"clearhead eval {folder} questions.jsonl"
    if bundle.spec.is_encoder_decoder or bundle.spec.generates:
        return f'clearhead generate {folder} "a text"'
    second = ' --context "a second text"' if pairs else ""
    return f'clearhead predict {folder} "{_example(bundle)}"{second}'


def python_snippet(bundle: Bundle, run: RunConfig, name: str, *, pairs: bool = False) -> str:
    """The same in Python, by transformers or sentence-transformers; `pairs`: it reads two texts."""
    name = dumps(name, ensure_ascii=False)
    by_head = {"span": SPAN, "choice": CHOICE, "hidden": SENTENCE_VECTORS, "encoder": SENTENCE_VECTORS}
    if bundle.task in by_head:
        return by_head[bundle.task].format(name=name)
    if bundle.spec.is_encoder_decoder:
        return SEQ2SEQ.format(name=name, text=dumps(f"{run.data.prefix or ''}a text"))
    example, options = dumps(_example(bundle)), ""
    if pairs:
        example = dumps({"text": "a text", "text_pair": "a second text"})
    if bundle.spec.generates:
        if bundle.tokenizer is not None and bundle.tokenizer.chat_template is not None:
            example = '[{"role": "user", "content": "a question"}]'
        example += ", max_new_tokens=40"
        return PIPELINE.format(tag='"text-generation"', name=name, options="", example=example)
    if bundle.task == "tags":
        options = ', aggregation_strategy="first"'
    elif run.task == "regress":
        options = ', function_to_apply="none"'
    elif bundle.config.get("problem_type") == "multi_label_classification":
        options = ", top_k=None"
    tag = dumps(TAGS.get(bundle.task, "fill-mask"))
    return PIPELINE.format(tag=tag, name=name, options=options, example=example)


def adapter_snippet(bundle: Bundle, name: str, base: str) -> str | None:
    """How PEFT opens the adapter over its base; None for what it has no format for."""
    if not is_peft(bundle) or bundle.task not in (*AUTO_CLASSES, "tokens"):
        return None
    generates, pair = bundle.spec.generates, bundle.spec.is_encoder_decoder
    words = "Seq2SeqLM" if pair else "CausalLM" if generates else "MaskedLM"
    return PEFT_MODEL.format(
        auto=AUTO_CLASSES.get(bundle.task, f"AutoModelFor{words}"),
        base=dumps(base, ensure_ascii=False),
        name=dumps(name, ensure_ascii=False),
        options=f", num_labels={len(bundle.labels)}" if bundle.task in ("labels", "tags") else "",
        text=dumps(_example(bundle)),
        use="model.generate(**inputs, max_new_tokens=40)" if generates or pair else "model(**inputs)",
    )


def _example(bundle: Bundle) -> str:
    if bundle.task in ("tokens", "pretrain") and not bundle.spec.generates:
        mask = bundle.tokenizer.mask if bundle.tokenizer is not None else None
        return f"a text with a {mask.text if mask is not None else '[MASK]'}"
    return "a text"
