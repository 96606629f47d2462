"""The examples of the fold library: right, and the same digits on any number of threads."""
import os
import random
import struct
import subprocess
import tempfile

BUILD = os.environ["ES_BUILD"]


def run(name, *arguments):
    return subprocess.run([os.path.join(BUILD, "example_" + name), *map(str, arguments)], check=True, capture_output=True,
                          text=True).stdout


for name, first in [("pi", 3000001), ("online_softmax", 100003)]:
    outputs = {run(name, first, threads) for threads in (1, 2, 3, 8)}
    assert len(outputs) == 1, outputs
assert abs(float(run("pi", 3000001).split()[0]) - 3.14159265) < 5e-3
values = [float(x) for x in run("online_softmax", 100003).split(":")[1].split()]
assert all(3 < x < 6 for x in values), values

with tempfile.NamedTemporaryFile() as file:
    random.seed(1)
    numbers = [struct.unpack("f", struct.pack("f", random.gauss(2, 3)))[0] for _ in range(30011)]
    file.write(struct.pack(f"{len(numbers)}f", *numbers)), file.flush()
    outputs = {run("file_statistics", file.name, threads) for threads in (1, 2, 5)}
    assert len(outputs) == 1
    figures = dict(line.split(None, 1) for line in outputs.pop().splitlines())
    mean = sum(numbers) / len(numbers)
    assert abs(float(figures["mean"]) - mean) < 1e-9
    assert abs(float(figures["deviation"]) ** 2 - sum((x - mean) ** 2 for x in numbers) / len(numbers)) < 1e-9
print("ok")
