"""check_schema_suite.py TOOL FOLDER [FILE...]: the JSON-Schema-Test-Suite, a folder such as tests/draft2020-12 of it. Each valid
instance must be accepted, each invalid one refused, if the schema compiles; the schemas that do not are counted by their error."""
import collections
import json
import os
import re
import sys

from grammar_tool import exchange

TOOL, FOLDER = sys.argv[1:3]
# The schemas of old drafts do not say which draft they are of.
OLD = {"draft3": "draft-03", "draft4": "draft-04", "draft6": "draft-06", "draft7": "draft-07"}.get(os.path.basename(FOLDER.rstrip("/")))
FILES = sys.argv[3:] or ["type", "properties", "required", "additionalProperties", "patternProperties", "items", "prefixItems",
                         "additionalItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
                         "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "enum", "const", "anyOf", "oneOf",
                         "allOf", "ref", "defs", "pattern", "boolean_schema", "infinite-loop-detection", "anchor", "default",
                         "optional/format/date", "optional/format/time", "optional/format/date-time", "optional/format/uuid",
                         "optional/format/email", "optional/format/ipv4", "optional/format/ipv6", "optional/format/uri"]


def main():
    messages, expected = [], []
    for name in FILES:
        path = os.path.join(FOLDER, name + ".json")
        if not os.path.exists(path):
            continue
        with open(path) as file:
            groups = json.load(file)
        for group in groups:
            if OLD and isinstance(group["schema"], dict):
                group["schema"].setdefault("$schema", f"http://json-schema.org/{OLD}/schema#")
            messages.append(b"S" + json.dumps(group["schema"]).encode())
            expected.append((name, group["description"], None, None))
            for test in group["tests"]:
                messages.append(b"T" + json.dumps(test["data"]).encode())
                expected.append((name, group["description"], test["description"], test["valid"]))
    counts, errors, refused = collections.Counter(), collections.Counter(), False
    for (name, group, test, valid), answer in zip(expected, exchange(TOOL, messages)):
        if test is None:
            refused = answer != "ok"
            counts["schemas refused" if refused else "schemas"] += 1
            if refused and answer != "error: no text can match the grammar":
                errors[re.sub(r"schema: \S*/", "", answer)] += 1
                print("refused:", name, "|", group, "|", answer)
            nothing = answer == "error: no text can match the grammar"
        elif refused and not (nothing and valid):
            counts["tests not run"] += 1
        elif (answer == "1") == valid:
            counts["right"] += 1
        else:
            counts["valid refused" if valid else "invalid accepted"] += 1
            print("WRONG:", name, "|", group, "|", test, "| valid", valid, "| answer", answer)
    print(dict(counts))
    sys.exit(counts["valid refused"] + counts["invalid accepted"] > 0)


main()
