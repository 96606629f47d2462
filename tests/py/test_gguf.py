"""Files written by the Python package gguf are read back whole: every kind of metadata, tensors of every type, split files."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from oracle_gguf import read_safetensors, write_gguf

DATA = os.path.join(os.environ["ES_SOURCE"], "tests", "data", "oracle")
TOOL = os.path.join(os.environ["ES_BUILD"], "tests", "dump_gguf")
Q = gguf.GGMLQuantizationType


def dump(path):
    run = subprocess.run([TOOL, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(run.stdout) if run.returncode == 0 else (run.returncode, run.stderr.decode())


def metadata_of_every_type(w):
    words = ["", "a", "\u00e9\u4e2d\U0001f600", "Ġthe", "x" * 5000]
    w.add_uint8("t.u8", 255), w.add_int8("t.i8", -128)
    w.add_uint16("t.u16", 65535), w.add_int16("t.i16", -32768)
    w.add_uint32("t.u32", 2**32 - 1), w.add_int32("t.i32", -(2**31))
    w.add_uint64("t.u64", 2**63 - 1), w.add_int64("t.i64", -(2**63))
    w.add_float32("t.f32", 0.1), w.add_float64("t.f64", 0.1)
    w.add_bool("t.yes", True), w.add_bool("t.no", False)
    w.add_string("t.text", words[2]), w.add_string("t.long", words[4])
    w.add_array("t.words", words), w.add_array("t.ints", [1, -2, 3]), w.add_array("t.floats", [0.5, -1.5])
    w.add_array("t.bools", [True, False, True])
    w.add_array("t.vocabulary", [f"token {i}" for i in range(20000)])
    return {
        "general.architecture": "llama", "t.u8": 255, "t.i8": -128, "t.u16": 65535, "t.i16": -32768, "t.u32": 2**32 - 1,
        "t.i32": -(2**31), "t.u64": 2**63 - 1, "t.i64": -(2**63), "t.f32": float(np.float32(0.1)), "t.f64": 0.1,
        "t.yes": True, "t.no": False, "t.text": words[2], "t.long": words[4], "t.words": words, "t.ints": [1, -2, 3],
        "t.floats": [0.5, -1.5], "t.bools": [True, False, True], "t.vocabulary": [f"token {i}" for i in range(20000)],
    }


def add_tensors(w, rng):
    """Tensors of every readable type and some others; returns what the reader should find."""
    readable, unreadable = {}, {}
    for qtype in [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.I32,
                  Q.Q2_K, Q.Q3_K, Q.IQ2_XXS, Q.IQ4_NL, Q.MXFP4, Q.TQ1_0, Q.I8, Q.F64]:
        elements, size = gguf.GGML_QUANT_SIZES[qtype]
        shape = (2, 3, 256)
        name = f"blk.0.{qtype.name.lower()}.weight"
        raw = rng.integers(0, 256, (2, 3, 256 // elements * size), dtype=np.uint8)
        w.add_tensor(name, raw, raw_dtype=qtype)
        if qtype.name in ["Q2_K", "Q3_K", "IQ2_XXS", "IQ4_NL", "MXFP4", "TQ1_0", "I8", "F64"]:
            unreadable[name] = qtype.name
        else:
            readable[name] = {"type": qtype.name, "shape": list(shape), "data": raw.tobytes().hex()}
    vector = rng.random(5, dtype=np.float32)
    w.add_tensor("norm.weight", vector)
    readable["norm.weight"] = {"type": "F32", "shape": [5], "data": vector.tobytes().hex()}
    return readable, unreadable


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check_oracle(family, dtype, folder):
    """An oracle model in this type holds as many numbers as its safetensors, and weights of the type."""
    source = os.path.join(DATA, family)
    path = os.path.join(folder, "oracle.gguf")
    write_gguf(source, path, dtype)
    tensors = dump(path)["tensors"]
    numbers = sum(a.size for a in read_safetensors(os.path.join(source, "model.safetensors")).values())
    found = sum(int(np.prod(t["shape"])) for t in tensors.values())
    kinds = {t["type"] for t in tensors.values()}
    return check(f"{family} as {dtype}", found == numbers and kinds == {"F32", dtype}, (found, numbers, kinds))


def check(name, condition, detail=""):
    print(f"{'ok    ' if condition else 'FAILED'} {name} {detail if not condition else ''}")
    return 0 if condition else 1


def main():
    rng = np.random.default_rng(7)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "whole.gguf")
        w = gguf.GGUFWriter(path, "llama")
        expect = metadata_of_every_type(w)
        readable, unreadable = add_tensors(w, rng)
        close(w)
        got = dump(path)
        found = got["metadata"]
        failures += check("every kind of metadata", found == expect,
                          [k for k in set(found) | set(expect) if found.get(k) != expect.get(k)])
        failures += check("tensors of every readable type", got["tensors"] == readable, sorted(got["tensors"]))
        failures += check("other types are named", got["unreadable"] == unreadable, got["unreadable"])

        path = os.path.join(folder, "aligned.gguf")
        w = gguf.GGUFWriter(path, "llama")
        w.add_custom_alignment(256)
        readable, _ = add_tensors(w, rng)
        close(w)
        failures += check("another alignment", dump(path)["tensors"] == readable)

        w = gguf.GGUFWriter(os.path.join(folder, "split.gguf"), "llama", split_max_tensors=4)
        w.add_string("t.text", "once")
        readable, unreadable = add_tensors(w, rng)
        close(w)
        parts = sorted(p for p in os.listdir(folder) if p.startswith("split-"))
        failures += check("the writer made parts", len(parts) == 6, parts)
        got = dump(os.path.join(folder, parts[0]))
        failures += check("a split file is whole", got["tensors"] == readable and got["unreadable"] == unreadable, got)
        failures += check("its metadata are the first part's", got["metadata"]["t.text"] == "once")
        code, message = dump(os.path.join(folder, parts[2]))
        failures += check("a later part names the first", code == 2 and parts[0] in message, message)
        os.remove(os.path.join(folder, parts[3]))
        code, message = dump(os.path.join(folder, parts[0]))
        failures += check("a missing part is named", code == 2 and parts[3] in message, message)

        path = os.path.join(folder, "big.gguf")
        w = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian.BIG)
        w.add_tensor("norm.weight", np.ones(4, np.float32))
        close(w)
        code, message = dump(path)
        failures += check("big-endian is refused by name", code == 2 and "big-endian" in message, message)

        for family in sorted(f for f in os.listdir(DATA) if os.path.isdir(os.path.join(DATA, f))):
            for dtype in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"] if family == "qwen3_5" else ["Q8_0"]:
                failures += check_oracle(family, dtype, folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
