"""test_schema_python.py TOOL COUNT [SEED]: random schemas and documents; what fits is what PyPI's jsonschema says. A schema that does not
compile must name the reason; documents that the library writes for a schema fit it."""
import json
import random
import sys

from grammar_tool import exchange

try:
    import jsonschema
except ImportError:
    print("skipped: no jsonschema")
    sys.exit(77)

TOOL, COUNT, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
DOCUMENTS = 40
KEYS = ["a", "b", "ab", "c1", "key", "é"]
TEXTS = ["", "a", "ab", "b1", "abc", "é\n", "x y", "12", "\"\\", "aaaa", "2024-01-31"]


def number(rng):
    return rng.choice([0, 1, -1, 2, 3, 7, 10, 0.5, -2.5, 1.25, 100, -17, 12])


def some_value(rng, depth):
    kind = rng.randrange(7 if depth else 5)
    if kind < 5:
        return [None, rng.random() < 0.5, number(rng), rng.choice(TEXTS), rng.choice([5, "ab", "a"])][kind]
    if kind == 5:
        return [some_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {key: some_value(rng, depth - 1) for key in rng.sample(KEYS, rng.randrange(4))}


def string_schema(rng):
    schema = {"type": "string"}
    if rng.random() < 0.4:
        schema["minLength"] = rng.randrange(3)
    if rng.random() < 0.4:
        schema["maxLength"] = rng.randrange(1, 5)
    if rng.random() < 0.4:
        schema["pattern"] = rng.choice(["^a", "b$", "[0-9]", "^[ab]*$", "^.{2}$", "(ab|x)", "^a+b?$", "y",
                                        "^(?!a)", "^(?=.*b)a", "^(?!ab$|x)[abx ]+", "^(?=..)(?!(a|b1))", "^(?!.*\\n)"])
    return schema


def number_schema(rng):
    schema = {"type": rng.choice(["number", "integer"])}
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = number(rng)
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = number(rng)
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([2, 3, 0.5, 5])
    return schema


def object_schema(rng, depth):
    schema = {"type": "object"}
    schema["properties"] = {key: some_schema(rng, depth - 1) for key in rng.sample(KEYS, rng.randrange(4))}
    if rng.random() < 0.5:
        schema["required"] = rng.sample(KEYS, rng.randrange(3))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice([False, True, some_schema(rng, depth - 1)])
    if rng.random() < 0.2:
        schema["patternProperties"] = {rng.choice(["^a", "[0-9]", "b"]): some_schema(rng, depth - 1)}
    if rng.random() < 0.05:
        schema["patternProperties"] = {pattern: some_schema(rng, depth - 1) for pattern in ["^a", "^b", "^c", "^k", "^é", "1$", "b$"]}
    if rng.random() < 0.2:
        schema["oneOf"] = [{"required": rng.sample(KEYS[:4], rng.randrange(1, 3))} for _ in range(rng.randrange(2, 4))]
    if rng.random() < 0.1:
        schema["not"] = {"required": rng.sample(KEYS[:4], rng.randrange(1, 3))}
    if rng.random() < 0.05:
        schema["not"] = {"anyOf": [{"required": [key]} for key in rng.sample(KEYS, 2)]}
    if rng.random() < 0.2:
        schema["dependentRequired"] = {key: rng.sample(KEYS, rng.randrange(3)) for key in rng.sample(KEYS[:4], 2)}
    if rng.random() < 0.1:
        schema["dependentSchemas"] = {rng.choice(KEYS): some_schema(rng, depth - 1)}
    if rng.random() < 0.1:
        schema["propertyNames"] = rng.choice([string_schema(rng), {"enum": rng.sample(KEYS, 3)}, {"maxLength": 2}, {"pattern": "^[a-c]"},
                                              {rng.choice(["anyOf", "oneOf", "allOf"]): [string_schema(rng), {"enum": rng.sample(KEYS, 3)}]},
                                              {"not": rng.choice([string_schema(rng), {"enum": rng.sample(KEYS, 2)}])}])
    if rng.random() < 0.15:
        key = rng.choice(KEYS)
        schema["if"] = {"properties": {key: rng.choice([{"const": number(rng)}, {"enum": TEXTS[:3]}, some_schema(rng, depth - 1)])}}
        if rng.random() < 0.5:
            schema["if"]["required"] = [key]
        for word in ("then", "else"):
            if rng.random() < 0.7:
                schema[word] = rng.choice([{"required": [rng.choice(KEYS)]}, object_schema(rng, depth - 1), False])
    if rng.random() < 0.15:
        schema["allOf"] = [{"properties": {rng.choice(KEYS): some_schema(rng, depth - 1)}}]
        schema["unevaluatedProperties"] = rng.choice([False, False, {"type": "integer"}])
        schema.pop("additionalProperties", None)
    if rng.random() < 0.3:
        del schema["type"]
    if rng.random() < 0.2:
        schema["minProperties"] = rng.randrange(3)
    if rng.random() < 0.2:
        schema["maxProperties"] = rng.randrange(1, 4)
    return schema


def array_schema(rng, depth):
    schema = {"type": "array"}
    if rng.random() < 0.7:
        schema["items"] = some_schema(rng, depth - 1)
    if rng.random() < 0.3:
        schema["prefixItems"] = [some_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        schema["minItems"] = rng.randrange(3)
    if rng.random() < 0.3:
        schema["maxItems"] = rng.randrange(1, 4)
    if rng.random() < 0.2:
        schema["contains"] = some_schema(rng, depth - 1)
        if rng.random() < 0.3:
            schema["minContains"] = rng.randrange(3)
        if rng.random() < 0.3:
            schema["maxContains"] = rng.randrange(1, 3)
    if rng.random() < 0.3:
        schema["uniqueItems"] = True
    if rng.random() < 0.1:
        schema["items"] = rng.choice([{"enum": [some_value(rng, 1) for _ in range(4)]}, {"type": "boolean"},
                                      {"anyOf": [{"const": 1}, {"type": "null"}, {"enum": ["a", "ab"]}]}])
    return schema


def some_schema(rng, depth):
    kind = rng.randrange(13 if depth > 0 else 7)
    if kind == 0:
        return rng.choice([True, {}, {"type": ["null", "boolean"]}, {"const": some_value(rng, 1)}])
    if kind == 1:
        return {"enum": [some_value(rng, 1) for _ in range(rng.randrange(1, 4))]}
    if kind < 4:
        return string_schema(rng)
    if kind < 7:
        return number_schema(rng)
    if kind < 9:
        return object_schema(rng, depth)
    if kind == 9:
        return array_schema(rng, depth)
    if kind == 12:
        schema = some_schema(rng, depth - 1)
        return {"not": schema} if rng.random() < 0.5 or not isinstance(schema, dict) else {"type": "object", **schema, "not": some_schema(rng, depth - 1)}
    return {rng.choice(["anyOf", "allOf", "oneOf"]): [some_schema(rng, depth - 1) for _ in range(2)]}


def near_values(rng, schema, depth):
    """Values that often fit."""
    if not isinstance(schema, dict) or rng.random() < 0.1:
        return some_value(rng, depth)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema and "properties" not in schema:
            return near_values(rng, rng.choice(schema[word]), depth)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else rng.choice(schema["enum"])
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        keys = set(schema.get("required", [])) | set(rng.sample(KEYS, rng.randrange(3)))
        return {key: near_values(rng, schema.get("properties", {}).get(key, True), depth - 1) for key in sorted(keys)}
    if kind == "array":
        return [near_values(rng, schema.get("items", True), depth - 1) for _ in range(rng.randrange(4))]
    if kind == "string":
        return rng.choice(TEXTS)
    return number(rng) if kind in ("number", "integer") else some_value(rng, depth)


def spelled(rng, value):
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 2])).encode()


def main():
    rng = random.Random(SEED)
    checked = fitting = refused = wrong = 0
    while checked < COUNT:
        messages, expected = [], []
        for _ in range(50):
            schema = some_schema(rng, 3)
            validator = jsonschema.Draft202012Validator(schema)
            messages.append(b"S" + json.dumps(schema).encode())
            expected.append((schema, None, None))
            for _ in range(DOCUMENTS):
                value = near_values(rng, schema, 3)
                messages.append(b"T" + spelled(rng, value))
                expected.append((schema, value, validator.is_valid(value)))
        compiled = False
        for (schema, value, valid), answer in zip(expected, exchange(TOOL, messages)):
            if valid is None:
                compiled = answer == "ok"
                refused += not compiled
                assert compiled or "schema: " in answer or "no text" in answer or "too " in answer, (schema, answer)
                continue
            if not compiled:
                continue
            checked += 1
            fitting += valid
            if (answer == "1") != valid:
                wrong += 1
                print("WRONG:", json.dumps(schema), json.dumps(value), "valid", valid, "answer", answer)
    print(f"{checked} documents, {fitting} of them fit; {refused} schemas were refused; {wrong} answers were wrong")
    assert fitting > checked // 10
    sys.exit(wrong > 0)


main()
