// What was sent over OTLP, decoded by what protobufjs made of the protocol's own definitions. The
// package has it from a time when the exporters used it themselves; those of today encode by hand.

import { createRequire } from 'node:module';

interface Value {
  readonly stringValue?: string | null;
  readonly doubleValue?: number | null;
}

export interface Valued {
  readonly key: string;
  readonly value?: Value | null;
}

interface Reference {
  readonly traceId: Uint8Array;
  readonly spanId: Uint8Array;
}

export interface OtlpSpan extends Reference {
  readonly parentSpanId: Uint8Array;
  readonly name: string;
  /** A Long, whose text is its number. */
  readonly startTimeUnixNano: unknown;
  readonly endTimeUnixNano: unknown;
  readonly attributes: readonly Valued[];
  readonly links: readonly Reference[];
}

interface Request {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Valued[] };
    readonly scopeSpans: readonly {
      readonly scope: { readonly name: string };
      readonly spans: readonly OtlpSpan[];
    }[];
  }[];
}

interface Definitions {
  readonly opentelemetry: {
    readonly proto: {
      readonly collector: {
        readonly trace: {
          readonly v1: {
            readonly ExportTraceServiceRequest: { decode(bytes: Uint8Array): Request };
          };
        };
      };
    };
  };
}

const require = createRequire(import.meta.url);
const definitions = require('otlp-protos/build/src/generated/root') as Definitions;

export const hex = (id: Uint8Array | undefined): string => Buffer.from(id ?? []).toString('hex');

/** The scopes of a request, each with the attributes of its resource. */
export function decodeTraces(bytes: Uint8Array) {
  const { ExportTraceServiceRequest } = definitions.opentelemetry.proto.collector.trace.v1;
  return ExportTraceServiceRequest.decode(bytes).resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.map(({ scope, spans }) => ({
      resource: resource.attributes,
      name: scope.name,
      spans,
    })),
  );
}
