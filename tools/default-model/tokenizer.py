"""tokenizer.py: trains the byte-level BPE on the generator's own text and writes it as tokenizer.json.

    python generate.py text > corpus.txt
    python tokenizer.py corpus.txt tokenizer.json

Digits stay single (the split pattern sees to that), so that numbers are copied one by one. The markup's tokens come last."""
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCAB = 4096
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def main():
    source, target = sys.argv[1:3]
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(CONTROL) - len(MARKUP), min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train([source], trainer)
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in CONTROL])
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x in MARKUP])
    t.save(target)
    print("vocabulary", t.get_vocab_size())


if __name__ == "__main__":
    main()
