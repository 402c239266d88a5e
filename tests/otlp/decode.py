"""Decodes an export from stdin by OpenTelemetry's definition of OTLP, and prints it as JSON with ids in hexadecimal."""

import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

export = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())
decoded = MessageToDict(export)
for resource, shown_resource in zip(export.resource_spans, decoded["resourceSpans"], strict=True):
    for scope, shown_scope in zip(resource.scope_spans, shown_resource["scopeSpans"], strict=True):
        for span, shown in zip(scope.spans, shown_scope["spans"], strict=True):
            shown["traceId"], shown["spanId"] = span.trace_id.hex(), span.span_id.hex()
            shown["parentSpanId"] = span.parent_span_id.hex() or None
print(json.dumps(decoded))
