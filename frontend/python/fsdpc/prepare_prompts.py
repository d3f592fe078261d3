"""Prompts and completions, or conversations, to samples of unequal length (`--train_data`), of which only the completions are learnt."""
import pathlib

from .prepare_tokens import end_token, open_tokenizer, token_of
from .rows import rows_of, sources_of, text_of
from .safetensors_file import SafetensorsFile

IGNORED = -100      # the default of --ignore_index


def prepare_prompts(sources, path, tokenizer, prompt="prompt", completion="completion", messages="messages", begin=None, end=None):
    """Writes each row of `sources` (a .jsonl, .parquet or .arrow, or a list) as a sample into `path`, a .safetensors that has
    `input_ids` and `labels` of unequal length (runtime/common/DATA.md), and returns how many there are.

    A row has a prompt and a completion, or `messages`, dicts with `role` and `content`, which the tokenizer's chat template makes a
    text; the arguments name the columns. labels[t] is the token after t if that is one of a completion, or of what the role
    "assistant" says; a token that a prompt and a completion share counts for the completion. All others are -100, which losses
    ignore. So it is for models that return logits; a graph that shifts labels itself would shift them twice.
    begin, end: the tokens before a prompt and after a completion, as text; by default none, and the one that `prepare` takes.
    tokenizer: as for `prepare`, or one of transformers. Needs tokenizers and numpy; datasets for .parquet and .arrow; transformers for
    messages. ValueError names the file and the row."""
    import numpy
    encoder, chat, bounds, labels = open_tokenizer(tokenizer), None, [0], []
    before = [] if begin is None else [token_of(encoder, begin)]
    with SafetensorsFile(path, "input_ids", "int32") as file:
        for source in sources_of(sources):
            for place, row in rows_of(source, [prompt, completion, messages]):
                if messages in row and prompt not in row:
                    chat = chat or _open_chat(tokenizer)
                    ids, learnt = _encode(encoder, *_conversation(chat, place, row[messages]))
                else:
                    parts = text_of(place, row, prompt), text_of(place, row, completion)
                    ids, learnt = _encode(encoder, "".join(parts), [(len(parts[0]), len(parts[0]) + len(parts[1]))])
                    ids = before + ids + [end_token(encoder, end)]
                    learnt = [False] * len(before) + learnt + [True]
                sample, label = _sample(place, numpy.array(ids, "int32"), numpy.array(learnt, bool))
                file.add(sample)
                labels.append(label)
                bounds.append(bounds[-1] + len(sample))
        if not labels:
            raise ValueError(f"{path}: the sources have no rows")
        offsets = numpy.array(bounds, "int64")
        file.finish({"input_ids.offsets": offsets, "labels": numpy.concatenate(labels), "labels.offsets": offsets})
    return len(labels)


def _sample(place, ids, learnt):
    """input_ids and labels."""
    import numpy
    if not learnt[1:].any():
        raise ValueError(f"{place}: no token is left to be learnt")
    return ids[:-1], numpy.where(learnt, ids, numpy.int32(IGNORED))[1:]


def _encode(encoder, text, spans):
    """The tokens of a text, and for each whether it ends in one of the spans, which are (begin, end) in ascending order."""
    encoding, learnt, span = encoder.encode(text, add_special_tokens=False), [], 0
    for _, end in encoding.offsets:
        while span < len(spans) and spans[span][1] < end:
            span += 1
        learnt.append(span < len(spans) and spans[span][0] < end)
    return list(encoding.ids), learnt


def _open_chat(tokenizer):
    if isinstance(tokenizer, (str, pathlib.Path)):
        import transformers
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(tokenizer))
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the tokenizer has no chat template, which rows of messages need")
    return tokenizer


def _conversation(chat, place, messages):
    """The text of a conversation, and where in it the assistant speaks."""
    def render(part, generate=False):
        try:
            return chat.apply_chat_template(part, tokenize=False, add_generation_prompt=generate)
        except Exception as error:      # whatever the template raises
            raise ValueError(f"{place}: the chat template refuses the messages: {error}") from error

    if not isinstance(messages, list) or not all(isinstance(message, dict) and "role" in message for message in messages):
        raise ValueError(f"{place}: messages are a list of objects with 'role' and 'content'")
    text, spans = render(messages), []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            question, answered = render(messages[:i], True), render(messages[:i + 1])
            if not answered.startswith(question) or not text.startswith(answered):
                raise ValueError(f"{place}: the chat template writes message {i + 1} otherwise when more follow; end the row with it")
            spans.append((len(question), len(answered)))
    return text, spans
