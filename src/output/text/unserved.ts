// The section of a report that lists the Services without usable endpoints.

import type { UnservedReason } from '../../audit/service/unserved.ts';
import type { RenderOptions } from './format.ts';
import { escapeInvisible, paint, wrap } from './format.ts';

/** A Service without usable endpoints. */
export interface UnservedRow {
  readonly namespace: string;
  readonly name: string;
  readonly reason: UnservedReason;
  /** One clause; computed when it is read, since it searches the pods of the namespace. */
  readonly detail: string;
}

/** More Services are only counted. */
const mostRows = 50;

/** Lines that end with an empty one; none without such Services. */
export function formatUnserved(services: readonly UnservedRow[], options: RenderOptions): string[] {
  if (services.length === 0) return [];
  const rows = services
    .slice(0, mostRows)
    .flatMap(({ namespace, name, reason, detail }) => [
      `  ${escapeInvisible(`${namespace}/${name}`)}  ${reason}`,
      ...wrap(detail, '    ', '    ', options),
    ]);
  const more = services.length - mostRows;
  const title = `Services without usable endpoints: ${services.length}`;
  const rest = more > 0 ? [`  and ${more} more: -o json lists all`] : [];
  return [paint(options.colour, 'bold', title), ...rows, ...rest, ''];
}
