// Reads who owns the fields of one object: metadata.managedFields, which no list or watch of the
// auditor keeps. The answer has only the metadata of the object: PartialObjectMetadata and
// ManagedFieldsEntry of k8s.io/apimachinery@v0.36.3 pkg/apis/meta/v1/types.go.

import { type FieldManagers, isFieldSet, type ManagedFields } from '../../model/managed-fields.ts';
import type { Resource } from '../../model/objects.ts';
import { isFields } from '../decode/json-fields.ts';
import { pathOf } from './listwatch.ts';
import { bodyText, type Environment, exchange } from './transport/request.ts';

const accept = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1';

/** Seconds until an answer must be complete. */
const mostSeconds = 10;

const refusals: Readonly<Record<number, string>> = {
  403: 'the auditor may not get the object',
  404: 'the object does not exist any more',
};

/** Gets the field managers of an object; without `namespace`, of a Node. Never rejects. */
export async function readManagers(
  environment: Environment,
  resource: Resource,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  signal: AbortSignal,
): Promise<FieldManagers> {
  const path = `${pathOf(resource, namespace || null)}/${encodeURIComponent(name)}`;
  const request = { path, query: {}, accept };
  try {
    return await exchange(environment, request, { total: mostSeconds }, signal, async (answer) => {
      const { status, body } = answer;
      if (status !== 200) {
        return { unknown: refusals[status] ?? `the API server answered ${status}` };
      }
      const text = await bodyText(body);
      return text === null ? { unknown: 'the object is too large' } : managersIn(text);
    });
  } catch {
    return { unknown: 'the API server did not answer' };
  }
}

function managersIn(text: string): FieldManagers {
  const object: unknown = JSON.parse(text);
  const metadata = isFields(object) ? object.metadata : null;
  const entries = isFields(metadata) ? metadata.managedFields : null;
  if (!Array.isArray(entries)) return { unknown: 'the object has no metadata.managedFields' };
  return entries.filter(isFields).map((entry): ManagedFields => {
    const at = Date.parse(String(entry.time)) / 1000;
    return {
      manager: typeof entry.manager === 'string' ? entry.manager : '',
      at: Number.isNaN(at) ? null : at,
      // A set with too many levels is left out: a checkpoint that has it could not be written.
      fields: isFieldSet(entry.fieldsV1) ? entry.fieldsV1 : {},
    };
  });
}
