"""`evenshare stats` against numpy in float64: .npy files of every type, raw files, safetensors, quantised GGUF tensors, and
the default model when it is there; the same figures from any number of threads; notes; what is refused."""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = os.path.join(os.environ["ES_BUILD"], "evenshare")
random = np.random.default_rng(7)


def run(*arguments, code=0, instruction_set=None):
    environment = dict(os.environ)
    if instruction_set:
        environment["ES_INSTRUCTION_SET"] = instruction_set
    done = subprocess.run([PROGRAM, "stats", *map(str, arguments)], capture_output=True, text=True, env=environment)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done


def figures(*arguments, **options):
    report = json.loads(run(*arguments, "--json", **options).stdout)
    return {t["name"]: t for t in report["tensors"]}


def close(got, wanted, relative, scale=0.0):
    assert abs(got - wanted) <= relative * max(abs(wanted), scale), (got, wanted)


def check(t, x):
    """Figures of one tensor against the numbers it holds."""
    x = np.asarray(x, dtype=np.float64)
    flat = x.ravel()
    good = flat[np.isfinite(flat)]
    assert t["count"] == flat.size and t["finite"] == good.size and t["zeros"] == int((good == 0).sum())
    assert t["nan"] == int(np.isnan(flat).sum())
    assert t["plus_inf"] == int((flat == np.inf).sum()) and t["minus_inf"] == int((flat == -np.inf).sum())
    if "histogram" in t:
        check_histogram(t["histogram"], flat)
    if good.size == 0:
        assert t["min"] is None and t["max"] is None
        return
    mean, d = good.mean(), good - good.mean()
    m2 = (d * d).mean()
    assert t["min"] == good.min() and t["max"] == good.max()
    close(t["mean"], mean, 1e-6, scale=np.sqrt(m2) * 1e-6)
    close(t["std"], np.sqrt(m2), 1e-6)
    if m2 > 1e-24 * mean * mean:
        # of itself, or of its own sampling error where it is less than that
        close(t["skewness"], (d ** 3).mean() / m2 ** 1.5, 1e-6, scale=np.sqrt(6 / good.size))
        close(t["kurtosis"] + 3, (d ** 4).mean() / m2 ** 2, 1e-4)


def check_histogram(bins, flat):
    with np.errstate(over="ignore"):
        single = flat[~np.isnan(flat)].astype(np.float32)
    assert sum(b[2] for b in bins) == np.isfinite(single).sum()
    edge = -np.inf
    for low, high, count in bins:
        assert low >= edge and high > low
        edge = high
        size = np.abs(single)
        same = np.signbit(single) if high <= 0 else ~np.signbit(single)
        inside = same & (size >= min(abs(low), abs(high))) & (size < max(abs(low), abs(high)))
        assert count == int(inside.sum()), (low, high, count)


def with_oddities(x):
    x = x.copy()
    flat = x.reshape(-1)
    flat[3], flat[5], flat[7], flat[11] = np.nan, np.inf, -np.inf, -0.0
    flat[13::97] = 0
    return x


def npy_files(folder):
    shapes = [(), (1,), (0,), (17,), (1000,), (8193,), (33, 577), (9, 20000), (4, 3, 65, 7)]
    for kind in ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]:
        for i, shape in enumerate(shapes):
            x = random.standard_normal(shape) * 3 + 1
            if kind[0] in "iu":
                x = np.abs(x * 30) if kind[0] == "u" else x * 30
            x = np.asarray(x).astype(kind)
            if kind[0] == "f" and x.size > 500:
                x = with_oddities(x)
            if i == 6:
                x = np.asfortranarray(x)
            path = os.path.join(folder, "x.npy")
            np.save(path, x)
            (t,) = figures(path).values()
            assert t["shape"] == list(shape)
            check(t, x)
    for kind in [">f4", "c8", "S3", "M8[s]"]:
        np.save(path, np.zeros(3, dtype=kind))
        assert "x.npy" in run(path, code=2).stderr
    np.save(path, np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]))
    run(path, code=2)
    whole = open(os.path.join(folder, "x.npy"), "rb").read()
    for cut in range(0, len(whole), 7):
        open(path, "wb").write(whole[:cut])
        run(path, code=2)


def to_bf16(x):
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return (bits >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + body)


def safetensors_and_threads(folder):
    tensors, wanted = {}, {}
    for name, shape, center, spread in [("a", (64, 576), 0, 0.02), ("b", (3, 50000), 1, 0.01), ("c", (100,), 5, 1),
                                        ("d", (), 2, 0)]:
        x = (random.standard_normal(shape) * spread + center).astype(np.float32)
        for kind, data, back in [("F32", x.tobytes(), x), ("F16", x.astype(np.float16).tobytes(), x.astype(np.float16)),
                                 ("BF16", to_bf16(x).tobytes(), from_bf16(to_bf16(x)).reshape(shape))]:
            tensors[name + kind], wanted[name + kind] = (kind, shape, data), back
    odd = with_oddities(random.standard_normal((40, 999)).astype(np.float32))
    tensors["odd"], wanted["odd"] = ("BF16", odd.shape, to_bf16(odd).tobytes()), from_bf16(to_bf16(odd)).reshape(odd.shape)
    path = os.path.join(folder, "model.safetensors")
    write_safetensors(path, tensors)
    first = figures(path, "--threads", 1)
    assert set(first) == set(wanted)
    for name, x in wanted.items():
        check(first[name], x)
    for threads in 2, 3, 7:
        assert figures(path, "--threads", threads) == first
    for instruction_set in "reference", "avx2":
        assert figures(folder, instruction_set=instruction_set) == first
    assert set(figures(path, "--only", "odd")) == {"odd"}
    assert "histogram" not in figures(path, "--only", "odd", "--no-histogram")["odd"]
    run(path, "--only", "nothing like it", code=2)


def raw_files(folder):
    path = os.path.join(folder, "numbers")
    x = random.standard_normal((30, 500)).astype(np.float32)
    x[17] *= 20
    open(path, "wb").write(to_bf16(x).tobytes())
    (t,) = figures(path, "--type", "bf16", "--columns", 500).values()
    check(t, from_bf16(to_bf16(x)))
    assert t["outlier_rows"] == 1 and t["worst_rows"][0]["row"] == 17
    close(t["worst_rows"][0]["rms"], np.sqrt((from_bf16(to_bf16(x[17])).astype(np.float64) ** 2).mean()), 1e-6)
    rms = np.sqrt((x.astype(np.float64) ** 2).mean(axis=1))
    close(t["median_row_rms"], np.median(rms), 0.02)
    run(path, "--type", "f8", code=2), run(path, "--type", "bf16", "--columns", 7, code=2), run(path, code=2)
    run(path, "--columns", 7, code=2)


def notes(folder):
    path = os.path.join(folder, "x.npy")
    def of(x):
        np.save(path, x)
        (t,) = figures(path).values()
        return t["notes"]
    x = random.standard_normal((100, 100)).astype(np.float32)
    assert of(x) == ""
    assert of(x * 0) == "all zeros" and of(x * 0 + 3) == "all equal"
    cut = x.copy()
    cut[80:] = 0
    assert "the last 20 of 100 rows are zeros" in of(cut)
    peak = x.copy()
    peak[5, 5] = 1e4
    assert "peaks at 100 deviations" in of(peak) and "1 outlier row" in of(peak)
    peak[0, 0], peak[0, 1] = np.nan, np.inf
    assert of(peak).startswith("1 NaN; 1 infinite")


def quantised(folder):
    path = os.path.join(folder, "q.gguf")
    x = random.standard_normal((24, 512)).astype(np.float32) * 0.05
    wanted, writer = {}, gguf.GGUFWriter(path, "llama")
    for kind in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
        number = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(x, number)
        writer.add_tensor(kind, data, raw_dtype=number)
        wanted[kind] = gguf.quants.dequantize(data, number)
    for kind, bytes_ in [("Q4_K", 144), ("Q5_K", 176), ("Q6_K", 210)]:
        number = gguf.GGMLQuantizationType[kind]
        data = random.integers(0, 256, (24, 2 * bytes_), dtype=np.uint8)
        scale = np.frombuffer(np.float16(0.01).tobytes(), dtype=np.uint8)
        for block in range(2): # scales that are plain numbers
            for at in ([0, 2] if kind != "Q6_K" else [208]):
                data[:, block * bytes_ + at:block * bytes_ + at + 2] = scale
        writer.add_tensor(kind, data, raw_dtype=number)
        wanted[kind] = gguf.quants.dequantize(data, number)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    got = figures(path)
    for kind, x in wanted.items():
        assert got[kind]["type"] == kind
        check(got[kind], x)


def reports(folder):
    path, html = os.path.join(folder, "<b>&.npy"), os.path.join(folder, "report.html")
    np.save(path, random.standard_normal((50, 50)))
    run(path, "--html", html)
    page = open(html).read()
    assert "&lt;b&gt;&amp;.npy" in page and "<b>&.npy" not in page and page.rstrip().endswith("</html>") and "<svg" in page
    assert "src=" not in page and "href=" not in page and "://" not in page
    run(path, "--html", os.path.join(folder, "no", "such", "folder.html"), code=1)
    assert "tensors" in run(path, "--bandwidth", 1).stdout


def the_default_model():
    path = os.environ.get("ES_MODEL") or os.path.join(os.environ["ES_SOURCE"], "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not os.path.exists(path):
        print("the default model is not here: not compared")
        return
    got = figures(path)
    tensors = gguf.GGUFReader(path).tensors
    assert set(got) == {tensor.name for tensor in tensors}
    for tensor in tensors[::23]: # decoding in Python is slow
        check(got[tensor.name], gguf.quants.dequantize(tensor.data, tensor.tensor_type))


with tempfile.TemporaryDirectory() as where:
    for test in npy_files, safetensors_and_threads, raw_files, notes, quantised, reports:
        with tempfile.TemporaryDirectory(dir=where) as own:
            test(own)
        print("ok", test.__name__)
the_default_model()
