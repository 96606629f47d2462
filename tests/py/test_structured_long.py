# long
"""500 random JSON schemas: the server's answer follows each, or the schema is refused in words. Says what share is supported.

The schemas are made by hypothesis, their small parts by hypothesis-jsonschema; jsonschema is the judge, formats included. Some
hold what nobody can follow, or what is not supported, on purpose."""
import collections
import concurrent.futures
import json
import os
import warnings

import serving

try:
    import hypothesis
    import jsonschema
    from hypothesis import HealthCheck, Phase, given, settings, strategies as st
    from hypothesis_jsonschema import from_schema
except ImportError as missing:
    serving.skip(f"{missing.name} is not there (tests/requirements-long.txt)")

COUNT = int(os.environ.get("ES_SCHEMAS", "500"))
LEAST_SUPPORTED = 0.7  # of schemas that are refused on purpose about a fifth
NAMES = ["name", "age", "tags", "id", "value", "kind", "x", "größe", "a b", "next"]
PATTERNS = ["^[a-z]+$", "\\d{2,4}", "^(foo|bar)-[A-F0-9]{3}$", "^\\S+@\\w+$", "x|y$", "^.{3}", "^a(?=b)"]
FORMATS = ["date-time", "date", "time", "email", "uuid", "ipv4", "uri", "hostname", "regex"]
NUMBER = {"anyOf": [{"type": "integer", "minimum": -1000, "maximum": 1000}, {"enum": [0.5, -2.25, 0.1, 99.99, 0.001, 12345.678]}]}


def parts(required, **properties):
    return from_schema({"type": "object", "properties": properties, "required": list(properties)[:required],
                        "additionalProperties": False})


def count(least, most):
    return {"type": "integer", "minimum": least, "maximum": most}


NUMERIC = {"enum": ["integer", "number"]}
leaves = st.one_of(
    parts(1, type={"const": "string"}, minLength=count(0, 4), maxLength=count(2, 40), description={"enum": ["what it is", ""]}),
    parts(2, type={"const": "string"}, pattern={"enum": PATTERNS}),
    parts(2, type={"const": "string"}, format={"enum": FORMATS}),
    parts(1, type=NUMERIC, minimum=NUMBER, maximum=NUMBER),
    parts(1, type=NUMERIC, exclusiveMinimum=NUMBER, exclusiveMaximum=NUMBER),
    parts(2, type=NUMERIC, multipleOf={"enum": [1, 2, 5, 0.01]}, minimum=count(0, 50), maximum=count(50, 500)),
    parts(1, type={"enum": ["boolean", "null", "object", ["string", "null"], ["integer", "boolean"]]}),
    parts(1, enum={"type": "array", "minItems": 1, "maxItems": 5, "items": {"type": ["string", "integer", "null", "boolean"]}}),
    parts(1, const={"enum": ["c", 1, 1.5, None, {"a": [1, 2]}]}))


def several(schema, most):
    return st.lists(schema, min_size=1, max_size=most)


@st.composite
def compound(draw, schema):
    kind = draw(st.sampled_from(["object"] * 4 + ["map", "array", "array", "tuple", "anyOf", "oneOf", "allOf", "tagged", "rare"]))
    if kind in ("object", "map"):
        out = {"type": "object", "properties": draw(st.dictionaries(st.sampled_from(NAMES), schema, min_size=1, max_size=5))}
        if draw(st.booleans()):
            out["required"] = draw(st.lists(st.sampled_from(NAMES[:6]), unique=True, max_size=4))
        if kind == "map":
            out |= draw(parts(0, minProperties=count(0, 3), maxProperties=count(1, 8)))
            out["additionalProperties"] = draw(schema)
        elif draw(st.booleans()):
            out["additionalProperties"] = draw(st.booleans())
        return out
    if kind == "array":
        return {"type": "array", "items": draw(schema)} | draw(parts(0, minItems=count(0, 2), maxItems=count(0, 5)))
    if kind == "tuple":
        return {"type": "array", "prefixItems": draw(several(schema, 3))} | draw(parts(0, minItems=count(0, 3)))
    if kind == "tagged":
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": f"k{i}"}, "value": draw(schema)}, "required": ["kind"]}
                          for i in range(draw(st.integers(1, 3)))]}
    if kind != "rare":
        return {kind: draw(several(schema, 3))}
    return draw(st.one_of(st.fixed_dictionaries({"not": schema}), st.fixed_dictionaries({"if": schema, "then": schema}),
                          st.fixed_dictionaries({"type": st.just("array"), "items": schema, "uniqueItems": st.just(True)}),
                          st.fixed_dictionaries({"type": st.just("object"), "patternProperties": st.just({"^x-": {"type": "integer"}})})))


NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["next"]}
schemas = st.recursive(leaves, compound, max_leaves=6)


def make(count, seed):
    """`count` schemas that differ from each other."""
    out = {}

    @hypothesis.seed(seed)
    @settings(max_examples=3 * count, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(schemas, st.booleans())
    def collect(schema, recursive):
        if recursive and schema.get("type") == "object" and "properties" in schema:
            schema = schema | {"$defs": {"node": NODE}, "properties": schema["properties"] | {"list": {"$ref": "#/$defs/node"}}}
        out.setdefault(json.dumps(schema, ensure_ascii=False), schema)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect()
    return list(out.values())[:count]


def ask(server, schema, seed):
    """(status, text or message, finish_reason)"""
    body = {"messages": [{"role": "user", "content": "Write an example."}], "max_tokens": 1500, "seed": seed, "temperature": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    status, _, reply = server.post("/v1/chat/completions", body, seconds=300)
    reply = json.loads(reply)
    if status != 200:
        return status, reply["error"]["message"], None
    choice = reply["choices"][0]
    return status, choice["message"]["content"], choice["finish_reason"]


def judge(server, schema):
    """What became of a schema: "valid", "cut" or "refused: ..."."""
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for seed in range(4):  # a small model may fill a string until its tokens are used up
        status, text, finish = ask(server, schema, seed)
        if status == 400:  # not JSON: a number beyond 64 bits, or U+0000
            assert text.startswith(("response_format.json_schema.schema", "grammar: ", "the body is not valid JSON: ")), text
            return "refused: " + text.split(": ", 1)[1]
        assert status == 200, (status, text, schema)
        if finish == "stop":
            checker.validate(json.loads(text))
            return "valid"
        assert finish == "length", finish
    return "cut"


def five_hundred_schemas_are_followed_or_refused():
    outcomes = collections.Counter()
    model = serving.find_model() or serving.skip("no model that can chat (models/ or $ES_MODEL)")
    made = make(COUNT, 1)
    with serving.real_server(model, "--parallel", "4", "--ctx", "4096") as server:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for schema, outcome in zip(made, pool.map(lambda s: judge(server, s), made)):
                outcomes[outcome] += 1
                if outcome == "cut":
                    print("cut:", json.dumps(schema)[:200])
    supported = outcomes["valid"] + outcomes["cut"]
    print(f"{len(made)} schemas: {outcomes['valid']} answers valid, {outcomes['cut']} cut by max_tokens, {len(made) - supported} refused; "
          f"supported {supported / len(made):.1%}")
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome[:120]}")
    assert len(made) == COUNT and supported >= LEAST_SUPPORTED * COUNT and outcomes["cut"] <= COUNT // 50


if __name__ == "__main__":
    serving.run([five_hundred_schemas_are_followed_or_refused])
