"""`bench report` measures and writes JSON, CSV and a page that loads nothing; `bench compare` tells change from noise."""
import csv
import html.parser
import io
import json
import os
import subprocess
import tempfile

import serving

EVENSHARE = os.path.join(serving.BUILD, "evenshare")


def bench(*arguments):
    return subprocess.run([EVENSHARE, "bench", *arguments], capture_output=True, text=True, timeout=300)


class Page(html.parser.HTMLParser):
    """Which tags a page has, that they are closed, and what they ask for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.asked, self.words = [], {}, [], ""
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.asked += [(name, value) for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != "path":
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words += data


def a_report_is_measured_and_written_three_ways():
    model = serving.find_model()
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: os.path.join(folder, "r." + kind) for kind in ("json", "csv", "html")}
        done = bench("report", "-m", model, "--depth", "0,128", "--tokens", "16", "--gaps", "8", "--runs", "2",
                     *(f"--{kind}={path}" for kind, path in paths.items()))
        assert done.returncode == 0, done.stderr
        texts = {kind: open(path, encoding="utf-8").read() for kind, path in paths.items()}
        report = json.loads(texts["json"])
        assert [(r["bench"], r["depth"], r["tokens"]) for r in report["rows"]] == [
            ("decode", 0, 1), ("decode", 128, 1), ("prefill", 0, 16), ("prefill", 128, 16)]
        for row in report["rows"]:
            assert 0 < row["least_seconds"] <= row["seconds"] <= row["most_seconds"]
            assert abs(row["tokens_per_second"] - row["tokens"] / row["seconds"]) < 1e-6 * row["tokens_per_second"]
        assert [(g["depth"], len(g["milliseconds"])) for g in report["gaps"]] == [(0, 8), (128, 8)]
        assert report["machine"]["cores"] >= 1 and report["machine"]["limits"]["read_bytes_per_second"] > 0 and report["model"]["name"]
        table = list(csv.DictReader(io.StringIO(texts["csv"])))
        assert len(table) == 4 + 16 and table[0]["bench"] == "decode" and abs(float(table[0]["seconds"]) - report["rows"][0]["seconds"]) < 1e-9
        page = Page(texts["html"])
        assert page.tags["svg"] == 4 and page.asked == [] and "script" not in page.tags and report["machine"]["cpu"] in page.words
        assert "nan" not in texts["html"] and "inf" not in texts["html"]
        again = bench("report", "--from", paths["json"], "--html", "-")
        assert again.returncode == 0 and again.stdout == texts["html"], again.stderr
        same = bench("compare", paths["json"], paths["json"], "--fail")
        assert same.returncode == 0 and "4 compared: 0 faster, 0 slower" in same.stdout, same.stdout


def a_strangers_report_is_only_data():
    hostile = {"machine": {"cpu": "<script>alert(1)</script>\x1b[31m", "limits": 3}, "model": {"name": "\"><img src=x onerror=y>"},
               "rows": [None, 7, {"bench": "decode"}, {"bench": "decode", "depth": 1e308, "tokens": -5, "seconds": "x", "tokens_per_second": 1e300},
                        {"bench": "a,\"b\n", "depth": []}], "gaps": [{"depth": 1, "milliseconds": [1, "x", None, -4]}, {}, 3]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "r.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(hostile, file)
        done = bench("report", "--from", path, "--html", "-")
        assert done.returncode == 0, done.stderr
        page = Page(done.stdout)
        assert page.asked == [] and "script" not in page.tags and "img" not in page.tags and "\x1b" not in done.stdout
        table = list(csv.reader(io.StringIO(bench("report", "--from", path, "--csv", "-").stdout)))
        assert len({len(row) for row in table}) == 1
        for text in ("[]", "{}", "{", '{"rows": 3}'):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = bench("report", "--from", path, "--html", "-")
            assert done.returncode == 2 and "no report" in done.stderr, text
        assert bench("report").returncode == 2


def row(seconds, spread=0.01, **names):
    return {"bench": "decode", "depth": 0, "tokens": 1, "seconds": seconds, "least_seconds": seconds * (1 - spread),
            "most_seconds": seconds * (1 + spread), **names}


def compare_tells_change_from_noise():
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("a.json", "b.json")]

        def compare(before, after, *options, cpus=("x", "x")):
            for path, rows, cpu in zip(paths, (before, after), cpus):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({"machine": {"cpu": cpu}, "rows": rows}, file)
            return bench("compare", *paths, *options)

        before = [row(1.0), row(1.0, depth=8), row(1.0, depth=16, spread=0.5), row(1.0, depth=32), row(1.0, numeric="f32")]
        after = [row(0.5), row(2.0, depth=8), row(1.4, depth=16, spread=0.5), row(1.02, depth=32, spread=0.001), row(9.0, numeric="int8")]
        done = json.loads(compare(before, after, "--json").stdout)
        assert [r["verdict"] for r in done["rows"]] == ["faster", "slower", "same", "same"] and done["only_before"] == 1
        assert done["rows"][0]["speed"] == 2 and done["rows"][1]["speed"] == 0.5
        assert compare(before, after).returncode == 0 and compare(before, after, "--fail").returncode == 1
        assert "slower" in compare(before, after, "--tolerance", "1").stdout
        assert "two machines" in compare(before, after, cpus=("x", "y")).stderr
        kernels = [{"operation": "dot", "type": "Q8_0", "seconds": 2.0, "best_seconds": 1.9}]
        assert "1 compared" in compare(kernels, kernels).stdout
        assert compare([row(1.0)], [row(1.0, depth=3)]).returncode == 2
        assert compare([], [3, None]).returncode == 2
        assert bench("compare", paths[0]).returncode == 2


if __name__ == "__main__":
    serving.run([a_report_is_measured_and_written_three_ways, a_strangers_report_is_only_data, compare_tells_change_from_noise])
