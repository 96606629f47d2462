"""jinja2 set up as transformers sets it up for chat templates, and this project's interpreter beside it."""

import datetime
import json
import os
import pickle
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1785585600  # 2026-08-01, 12:00 UTC


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


class Oracle:
    def __init__(self):
        self.env = environment()
        self.source = self.template = None

    def render(self, source, variables):
        """(True, text) or (False, reason)."""
        try:
            if source != self.source:
                self.source, self.template = source, None
                self.template = self.env.from_string(source)
            if self.template is None:
                return False, "does not parse"
            return True, self.template.render(**pickle.loads(pickle.dumps(variables)))  # a copy: indent would change a list
        except (Exception, RecursionError) as error:  # whatever Python raises, the template failed
            return False, f"{type(error).__name__}: {error}"


class Ours:
    """The program render_template of the build folder."""

    def __init__(self):
        self.process = subprocess.Popen(
            [os.path.join(os.environ["ES_BUILD"], "tests", "render_template")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, variables):
        request = {"template": source, "now": NOW} if variables is None else {"template": source, "variables": variables, "now": NOW}
        request = json.dumps(request)
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"render_template died at {source!r}")
        answer = json.loads(line)
        return (True, answer["output"]) if "output" in answer else (False, answer["error"])

    def forms(self, source):
        """ "REASONING TOOLS", as the server finds them."""
        return self.render(source, None)[1]

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise SystemExit("render_template ended badly")


class Comparison:
    """Renders with both and counts what differs."""

    def __init__(self):
        self.oracle, self.ours = Oracle(), Ours()
        self.cases = self.failing = self.different = 0

    def check(self, source, variables, what="", expected=None):
        expected, got = expected or self.oracle.render(source, variables), self.ours.render(source, variables)
        self.cases += 1
        self.failing += not expected[0]
        same = expected == got if expected[0] else not got[0]
        if not same:
            self.different += 1
            if self.different <= 40:
                print(f"DIFFERENT {what} {source if len(source) < 300 else source[:100] + '...'!r}\n   jinja2: {expected!r}\n   here:   {got!r}")
        return expected, got

    def close(self):
        self.ours.close()
        print(f"{self.cases} renderings, {self.failing} of them fail in jinja2, {self.different} differ")
        return self.different == 0
