"""Reads bodies of requests to Gemini, one a line, and writes for each `null` or what is wrong with it.

The description is that of Google's own client: a field that it does not know, or of another type, is an error.
"""
import json
import sys

from google.ai.generativelanguage_v1beta.types import GenerateContentRequest
from google.protobuf import json_format

Request = GenerateContentRequest.pb()


def without_what_is_newer(body):
    """The API reference has fields that the newest published description lacks."""
    config = body.get("generationConfig", {}).get("thinkingConfig", {})
    level = config.pop("thinkingLevel", None)
    if level not in (None, "minimal", "low", "medium", "high", "MINIMAL", "LOW", "MEDIUM", "HIGH"):
        raise ValueError(f"no thinkingLevel: {level}")
    return body


for line in sys.stdin:
    try:
        json_format.ParseDict(without_what_is_newer(json.loads(line)), Request())
        print("null")
    except Exception as error:
        print(json.dumps(str(error)))
