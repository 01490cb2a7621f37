// The published JSON Schema of reports. Tests use a strict copy, which rejects unknown fields, so
// that a field that the schema does not describe is found.

import { readFileSync } from 'node:fs';

import { Ajv2020 } from 'ajv/dist/2020.js';

const text = readFileSync(new URL('../docs/report.schema.json', import.meta.url), 'utf8');

function strict(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(strict);
  if (typeof schema !== 'object' || schema === null) return schema;
  const copy = Object.fromEntries(Object.entries(schema).map(([key, it]) => [key, strict(it)]));
  return 'properties' in schema ? { ...copy, unevaluatedProperties: false } : copy;
}

const ajv = new Ajv2020({ allErrors: true, strict: true, allowUnionTypes: true });
const published = ajv.compile(JSON.parse(text) as object);
const complete = ajv.compile(strict(JSON.parse(text)) as object);

/** What the published schema rejects in a report, and the fields that it does not describe. */
export function schemaErrors(report: unknown): string[] {
  const document: unknown = JSON.parse(JSON.stringify(report));
  return [published, complete].flatMap((validate) => {
    validate(document);
    return (validate.errors ?? []).map(
      ({ instancePath, message = '', params }) =>
        `${instancePath} ${message} ${JSON.stringify(params)}`,
    );
  });
}
