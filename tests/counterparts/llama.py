"""llama.cpp's own HTTP server, with a model whose weights are random, on a free port of loopback.

usage: llama.py FILE CAP [endless]

Writes the model to FILE and serves it, at most CAP tokens a reply, until its input ends. An endless model never stops
by itself. What it says is junk, but tool calls are held to the grammar of their schemas, where the server does so.
"""
import sys

import gguf
import numpy as np
import xllamacpp

WIDTH, HEADS, FORWARD, LAYERS, CONTEXT = 64, 4, 128, 2, 8192
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
TEMPLATE = """
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
Answer with <tool_call>{"name": <name>, "arguments": <object>}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def byte_letters():
    """The letter by which GPT-2's tokenizer names each byte."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in plain)
    moved = {byte: 256 + place for place, byte in enumerate(others)}
    return [chr(moved.get(byte, byte)) for byte in range(256)]


def write(path, endless):
    """Writes a model of half a megabyte whose tokens are bytes."""
    random = np.random.default_rng(1)

    def tensor(*shape, scale=0.1):
        return (random.standard_normal(shape) * scale).astype(np.float32)

    tokens = [*byte_letters(), "he", *SPECIAL]
    place = {token: number for number, token in enumerate(tokens)}
    kinds = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.USER_DEFINED] * 2
    model = gguf.GGUFWriter(path, "llama")
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(FORWARD)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(len(tokens))
    model.add_tokenizer_model("gpt2")
    model.add_tokenizer_pre("gpt-2")
    model.add_token_list(tokens)
    model.add_token_types(kinds)
    model.add_token_merges(["h e"])
    model.add_bos_token_id(place["<|endoftext|>"])
    model.add_eos_token_id(place["<|im_end|>"])
    model.add_add_bos_token(False)
    model.add_chat_template(TEMPLATE)

    # The first dimension is the same for all tokens and no layer writes to it, so that what the last layer gives it is
    # a bias: towards an end or away from it, towards tool calls, towards ASCII.
    constant = 4.0
    embedding, output = tensor(len(tokens), WIDTH, scale=1.0), tensor(len(tokens), WIDTH, scale=0.3)
    embedding[:, 0], output[:, 0] = constant, 0
    bias = np.zeros(len(tokens), np.float32)
    bias[place["<|im_end|>"]] = bias[place["<|endoftext|>"]] = -50 if endless else 6
    bias[place["<tool_call>"]] = 0 if endless else 6
    bias[32:127] = 3
    output[:, 0] += bias / (constant / np.sqrt((constant**2 + WIDTH - 1) / WIDTH))
    ones = np.ones(WIDTH, np.float32)
    model.add_tensor("token_embd.weight", embedding)
    model.add_tensor("output_norm.weight", ones)
    model.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        parts = {name: tensor(WIDTH, WIDTH) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        parts |= {name: tensor(FORWARD, WIDTH) for name in ("ffn_gate", "ffn_up")}
        parts |= {"ffn_down": tensor(WIDTH, FORWARD), "attn_norm": ones, "ffn_norm": ones}
        parts["attn_output"][0, :] = parts["ffn_down"][0, :] = 0
        for name, part in parts.items():
            model.add_tensor(f"blk.{layer}.{name}.weight", part)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def serve(path, cap):
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.hostnames, settings.port = ["127.0.0.1"], 0
    settings.n_ctx, settings.n_parallel, settings.n_predict = 4 * CONTEXT, 4, cap
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.use_jinja = settings.endpoint_slots = settings.offline = True
    settings.warmup = settings.fit_params = settings.ui = False
    return xllamacpp.Server(settings)


write(sys.argv[1], endless="endless" in sys.argv)
server = serve(sys.argv[1], int(sys.argv[2]))
print("listening on", server.listening_address, flush=True)
sys.stdin.read()
