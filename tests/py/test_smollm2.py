# long
"""SmolLM2-135M-Instruct, teacher-forced over 2,000 tokens of a document, against llama.cpp on the same file (float32 keys and
values): the likeliest next token is the same at 97 % of the positions or more, and the perplexities are within 1 %."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile

try:
    import xllamacpp as llama
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOKENS = int(os.environ.get("ES_TOKENS", "2000"))
PLACES = ["the old harbour", "a village in the hills", "the library", "the northern station", "the market square"]
PEOPLE = ["the ferryman", "my grandmother", "a young surveyor", "the baker", "an engineer from the coast", "the schoolteacher"]
THINGS = ["a map of the river", "three brass keys", "the ledger", "a basket of pears", "an unfinished letter", "a broken clock"]
DEEDS = ["carried {thing} to {place}", "waited near {place} until the rain stopped", "found {thing} under the stairs",
         "promised to return before winter", "sold {thing} to {person}", "told {person} everything about {place}",
         "asked {person} for {thing}, and was refused", "walked home from {place} in the dark"]
LINKS = ["In the morning", "Two years later", "Because nobody had asked", "When the bridge was closed", "As everyone knows",
         "Against all advice", "On the first warm day of spring", "After the meeting"]
REASONS = ["because the road was flooded", "although the evening was cold", "and nobody noticed", "so that the work could begin",
           "which surprised {person}", "while the others were asleep"]


def document(rng, sentences):
    """English of a kind: the same words for the same seed."""
    def fill(text):
        return text.format(thing=rng.choice(THINGS), place=rng.choice(PLACES), person=rng.choice(PEOPLE))
    out = []
    for i in range(sentences):
        person = rng.choice(PEOPLE)
        text = fill(f"{rng.choice(LINKS)}, {person} {rng.choice(DEEDS)}")
        if rng.random() < 0.6:
            text += " " + fill(rng.choice(REASONS))
        out.append(text + "." + ("\n\n" if i % 6 == 5 else " "))
    return "".join(out)


def command(*arguments):
    run = subprocess.run([os.path.join(os.environ["ES_BUILD"], "evenshare"), *arguments], stdout=subprocess.PIPE)
    assert run.returncode == 0, arguments
    return json.loads(run.stdout)


def start(path):
    params = llama.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.warmup = TOKENS + 64, 1, False
    params.cpuparams.n_threads = 1                      # several would spin, and wait for each other on a busy machine
    params.cache_type_k = params.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return llama.Server(params)


def theirs(server, ids, position):
    """llama.cpp's likeliest token after ids[:position + 1], and the log-probability of the one that follows: the bias makes it
    the chosen one, and probabilities are those before any bias."""
    answer = server.handle_completions({"prompt": ids[: position + 1], "max_tokens": 1, "n_probs": 1, "logprobs": 1,
                                        "temperature": 0.0, "cache_prompt": True, "logit_bias": [[ids[position + 1], 1000]]})
    entry = answer["choices"][0]["logprobs"]["content"][0]
    assert entry["id"] == ids[position + 1], (position, entry)
    return entry["top_logprobs"][0]["id"], entry["logprob"]


def main():
    folder = os.path.join(os.environ["ES_SOURCE"], "models")
    model = os.environ.get("ES_MODEL") or os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.isfile(model) or "SmolLM2" not in os.path.basename(model):
        print(f"skipped: there is no {model}; ./dev serve fetches it")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as temporary:
        text = os.path.join(temporary, "document.txt")
        with open(text, "w", encoding="utf-8") as f:
            f.write(document(random.Random(135), TOKENS // 10))
        ids = [t["token"] for t in command("score", model, "--text", text, "--tokens", "--json")["token_logprobs"]][:TOKENS]
        assert len(ids) == TOKENS, f"the document has {len(ids)} tokens only"
        ids_path, logits_path = os.path.join(temporary, "ids.txt"), os.path.join(temporary, "logits.safetensors")
        with open(ids_path, "w", encoding="utf-8") as f:
            f.write(" ".join(map(str, ids)))
        scored = command("score", model, "--ids", ids_path, "--logits", logits_path, "--tokens", "--json")
        ours = [t["logprob"] for t in scored["token_logprobs"]]
        from oracle_gguf import read_safetensors
        likeliest = read_safetensors(logits_path)["logits"].argmax(-1)
    server = start(model)
    same, log_probability, apart = 0, 0.0, 0.0
    for position in range(TOKENS - 1):
        top, logprob = theirs(server, ids, position)
        same += top == likeliest[position]
        log_probability += logprob
        apart += abs(logprob - ours[position + 1])
    count = TOKENS - 1
    mine, peer = math.exp(-sum(ours[1:]) / count), math.exp(-log_probability / count)
    print(f"{TOKENS} tokens: the likeliest token is the same at {same} of {count} positions ({100 * same / count:.2f} %); "
          f"perplexity {mine:.4f}, llama.cpp {peer:.4f} ({100 * (mine / peer - 1):+.3f} %); "
          f"log-probabilities {apart / count:.2e} apart on average")
    assert same >= 0.97 * count and abs(mine / peer - 1) <= 0.01


if __name__ == "__main__":
    main()
