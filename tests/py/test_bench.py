"""`bench decode`, `prefill` and `batch` on a random model from `bench make-model`, which llama.cpp loads too; and
`evenshare bench kernels`: one JSON object that names the machine and holds a row for each kernel, all of them equal to their
references; the environment masks instruction sets, and an operation that is not there is refused with exit code 2."""
import json
import os
import subprocess
import tempfile

PROGRAM = os.path.join(os.environ["ES_BUILD"], "evenshare")


def bench(*arguments, **environment):
    return subprocess.run([PROGRAM, "bench", "kernels", *arguments], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300)


answer = bench("--only", "axpy", "--json")
assert answer.returncode == 0, answer.stderr
report = json.loads(answer.stdout)
assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
assert report["machine"]["instruction_sets"][-1] == "reference"
best = report["machine"]["instruction_sets"][0]
(row,) = report["rows"]
assert row["operation"] == "axpy" and row["equal"] is True and row["difference"] == "" and row["cases"] > 10
assert row["instruction_set"] == best and row["numeric"] == "f32"
assert 0 < row["best_seconds"] <= row["seconds"]

masked = json.loads(bench("--only", "axpy", "--json", ES_INSTRUCTION_SET="reference").stdout)
assert masked["rows"][0]["instruction_set"] == "reference"

everything = json.loads(bench("--only", "decode", "--json", "--instruction-set", "all").stdout)
assert len(everything["rows"]) == 11 * len(report["machine"]["instruction_sets"])
assert all(row["equal"] for row in everything["rows"])

refused = bench("--only", "nothing")
assert refused.returncode == 2 and "nothing" in refused.stderr


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


def check_bounds(report):
    """Products are bound by the peak of their own arithmetic, and every row says which; the rest by float32's."""
    limits, sets = report["machine"]["limits"], report["machine"]["instruction_sets"]
    peak = {kind: each["operations_per_second"] for kind, each in limits["matrix_peak"].items()}
    by = {kind: each["by"] for kind, each in limits["matrix_peak"].items()}
    if "avx2" in sets:
        assert by["int8"] == ("AMX tiles" if "amx" in sets else "VNNI" if "avx512vnni" in sets else "AVX2 byte products")
        assert by["bf16dp"] == ("AVX-512 bfloat16 dot products" if "avx512bf16" in sets else by["f32"])
        assert by["bf16"] == ("AMX tiles" if "amx" in sets else by["f32"]) and min(peak.values()) > 0
    for row in report["rows"]:
        assert row["arithmetic"] in ("int8" if row["numeric"] == "int8" else row["numeric"])
        if "avx2" in sets and (row["bench"] != "prefill" or row["tokens"] == 512):  # chunks have bounds of their own
            seconds = max(row["bytes"] / limits["read_bytes_per_second"],
                          row["product_operations"] / peak[row["arithmetic"]] + row["other_operations"] / peak["f32"])
            assert abs(row["bound_tokens_per_second"] * seconds / row["tokens"] - 1) < 1e-6


def check_steps(model):
    for what, tokens, extra in [("decode", 1, []), ("prefill", 40, ["-n", "40", "--chunk", "16"]), ("batch", 3, ["-b", "3"])]:
        answer = run("bench", what, model, "--depth", "0,200,1K", "--runs", "2", "--threads", "2", "--json", *extra)
        assert answer.returncode == 0, answer.stderr
        report = json.loads(answer.stdout)
        limits = report["machine"]["limits"]
        assert limits["threads"] == 2 and limits["read_bytes_per_second"] > 1e8
        check_bounds(report)
        assert [row["depth"] for row in report["rows"]] == [0, 200, 1024]
        for row in report["rows"]:
            assert row["bench"] == what and row["tokens"] == tokens and row["model"].startswith("random tiny")
            assert 0 < row["min"] <= row["tokens_per_second"] <= row["max"]
            assert abs(row["share"] - row["tokens_per_second"] / row["bound_tokens_per_second"]) < 1e-9
            assert row["huge_page_bytes"] >= 0 and row["barriers"] > 10 and row["cache_filled"] == (row["depth"] > 0)
        assert report["rows"][0]["bytes"] < report["rows"][2]["bytes"]
    check_bounds(json.loads(run("bench", "prefill", model, "--runs", "1", "--threads", "2", "--json").stdout))  # bound by products


def check_operations(model):
    """--operations names all of a step, those that took longest first; products by type and shape."""
    ask = ["bench", "batch", model, "-b", "2", "--runs", "3", "--threads", "2", "--device", "cpu", "--operations"]
    row = json.loads(run(*ask, "--json").stdout)["rows"][0]
    found = row["operations"]
    assert abs(sum(one["share"] for one in found) - 1) < 1e-9
    assert [one["seconds"] for one in found] == sorted((one["seconds"] for one in found), reverse=True)
    times = {one["operation"]: one["times"] for one in found}
    assert times["embed"] == 1 and times["attention"] >= 1 and any(name.startswith("matmul ") for name in times), times
    assert sum(times.values()) <= row["barriers"], "each operation ends at a barrier"
    table = run(*ask).stdout
    assert all(f" times  {name}\n" in table for name in times), table
    refused = run("bench", "decode", model, "--device", "cuda", "--operations")
    assert refused.returncode == 2 and "--operations" in refused.stderr, refused.stderr


def check_llamacpp(model):
    try:
        import xllamacpp as llama
    except ImportError:
        print("skipped: xllamacpp is not there")
        return
    params = llama.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = model, 256, 1, False
    params.cpuparams.n_threads = 1
    answer = llama.Server(params).handle_completions({"prompt": "hello world", "max_tokens": 4, "temperature": 0.0})
    assert answer["usage"]["completion_tokens"] >= 1


for kv_type in ["f32", "bf16", "f16", "q8_0"]:
    answer = run("bench", "attention", "--heads", "4/2/64", "--batch", "2", "--depth", "1,300", "--kv-type", kv_type, "--runs", "2",
                 "--threads", "2", "--json")
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)["rows"]
    assert [row["depth"] for row in rows] == [1, 300] and all(row["tokens_per_second"] > 0 for row in rows)
    assert rows[1]["bytes"] == 300 * 2 * 2 * 2 * 64 * {"f32": 4, "bf16": 2, "f16": 2, "q8_0": 34 / 32}[kv_type]
for heads in ["5/2/64", "0/0/0", "4/2", "4/2/64/1", "x"]:
    assert run("bench", "attention", "--heads", heads).returncode == 2

with tempfile.TemporaryDirectory() as folder:
    for shape in ["tiny-hybrid", "tiny-dense"]:
        for kind in ["q4_k_m", "bf16"]:
            path = os.path.join(folder, f"{shape}-{kind}.gguf")
            made = run("bench", "make-model", shape, "--type", kind, "-o", path)
            assert made.returncode == 0, made.stderr
            check_steps(path)
            check_operations(path)
            check_llamacpp(path)
for bad in [["tiny", "-o", "x"], ["tiny-dense"], ["tiny-dense", "--type", "q3_k", "-o", "x"]]:
    assert run("bench", "make-model", *bad).returncode == 2
assert run("bench", "make-model", "tiny-dense", "-o", "/dev/full").returncode == 1
assert run("bench", "decode", "--depth", "1,x").returncode == 2
print("ok")
