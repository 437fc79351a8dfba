# ruff: noqa: E501 (templates are as checkpoints have them)
"""Chat templates: the text that `transformers` renders, and nothing that a hostile template wants."""

import time
from pathlib import Path
from typing import Any

import pytest
import transformers
from trained import write

from clearhead.errors import InputError, LoadError
from clearhead.text import Tokenizer, chat

# As checkpoints have them: long lines, in the manner of their makers.
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' "
    "+ '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3 = (
    "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- endif %}\n"
    "{%- for message in messages %}\n    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n"
)
ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + "
    "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n"
    "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
HABITS = (  # what templates use of the environment: break, namespaces, tojson, the generation tag, a date, what is None
    "{%- set ns = namespace(seen=0) -%}{% for m in messages %}{% if ns.seen == 3 %}{% break %}{% endif %}"
    "{% set ns.seen = ns.seen + 1 %}{{ m | tojson }}{{ m | tojson(indent=2) }}"
    "{% generation %}{{ m.content | upper }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') | length }}"
    "{{ tools is none }}{{ documents is none }}"
)
TEMPLATES = {"chatml": CHATML, "llama-2": LLAMA2, "llama-3": LLAMA3, "zephyr": ZEPHYR, "habits": HABITS}
USER = {"role": "user", "content": " Hello <b>world</b> & 'you'? \n"}
ASSISTANT = {"role": "assistant", "content": "你好! 👋"}
CHATS: dict[str, list[dict[str, Any]]] = {
    "one": [USER],
    "system": [{"role": "system", "content": "You are kind."}, USER],
    "turns": [USER, ASSISTANT, USER, ASSISTANT, USER],
}


def made(folder: Path, template: str) -> Tokenizer:
    found = Tokenizer.read(write(folder / "t", "bytes", chat_template=template))
    assert found is not None
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_rendered_as_the_reference_does(name: str, tmp_path: Path) -> None:
    ours = made(tmp_path, TEMPLATES[name])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    for said in CHATS.values():
        text = ours.chat(said)
        assert text == theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        ids = theirs.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]
        assert ours.encode(text, specials=False).ids == ids
    ended = theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=False)
    assert ours.chat(said, reply=False) == ended


def rendered(template: str, messages: Any) -> str:
    return chat.render_chats(template, [(messages, {})])[0]


ATTRIBUTES = "is unsafe|undefined|SecurityError"
HOSTILE = {
    "loops": ("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
              "{% endfor %}{% endfor %}{% endfor %}", "too much time or memory|did not finish within"),
    "range": ("{{ range(10**12) | list }}", "Range too big"),
    "text": ("{{ 'a' * 10**12 }}", "more memory"),
    "doubling": ("{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
                 "more memory"),
    "output": ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "more than 4,194,304 characters"),
    "itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "without end"),
    "class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", ATTRIBUTES),
    "globals": ("{{ cycler.__init__.__globals__.os.system('id') }}", ATTRIBUTES),
    "attr": ("{{ (messages | attr('__class__')).__base__ }}", ATTRIBUTES),
    "change": ("{{ messages.append(1) }}", ATTRIBUTES),
    "file": ("{% include '/etc/passwd' %}", "no loader"),
    "broken": ("{% if %}", "TemplateSyntaxError"),
    "on purpose": ("{{ raise_exception('roles must alternate') }}", "TemplateError: roles must alternate"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_stopped_in_one_line(name: str, tmp_path: Path) -> None:
    template, why = HOSTILE[name]
    began = time.monotonic()
    with pytest.raises(LoadError, match=why) as error:
        rendered(template, [USER])
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    assert time.monotonic() - began < chat.TIMEOUT + 5


@pytest.mark.parametrize("inside", ["'{0.__class__}'.format(messages)", "messages | attr('__class__')"])
def test_what_the_sandbox_hides_is_nothing(inside: str) -> None:
    assert rendered("{{ " + inside + " }}", [USER]) == ""


def test_a_template_that_only_waits_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that computes nothing meets no limit of its own; the clock of the caller ends it."""
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(chat, "SCRIPT", script)
    monkeypatch.setattr(chat, "TIMEOUT", 0.3)
    with pytest.raises(LoadError, match=r"did not finish within 0\.3 s"):
        rendered(CHATML, [USER])


def test_the_caller_s_environment_is_not_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "looks.py"
    script.write_text("import json, os; print(json.dumps([str(os.environ.get('SECRET_TOKEN'))]))")
    monkeypatch.setattr(chat, "SCRIPT", script)
    monkeypatch.setenv("SECRET_TOKEN", "x")
    assert rendered(CHATML, [USER]) == "None"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ("hello", "a chat is a list of messages"),
        ([], "a chat is a list of messages"),
        ([{"content": "no role"}], "a message is"),
        (["hello"], "a message is"),
        ([{"role": "user", "content": object()}], "consist of strings, numbers, lists"),
    ],
)
def test_messages_that_are_none_are_refused(messages: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        rendered(CHATML, messages)


def test_a_checkpoint_without_a_template_says_so(tmp_path: Path) -> None:
    plain = Tokenizer.read(write(tmp_path / "t", "bytes"))
    assert plain is not None
    with pytest.raises(InputError, match="no chat template"):
        plain.chat([USER])
