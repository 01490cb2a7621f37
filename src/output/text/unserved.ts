// The section of a report that lists the Services without usable endpoints.

import type { Suppressed } from '../../audit/finding/catalogue.ts';
import type { UnservedReason } from '../../audit/service/unserved.ts';
import { suppressedText } from '../../audit/finding/suppressions.ts';
import type { RenderOptions } from './format.ts';
import { escapeInvisible, paint, wrap } from './format.ts';

/** A Service without usable endpoints. */
export interface UnservedRow {
  readonly namespace: string;
  readonly name: string;
  readonly reason: UnservedReason;
  /** One clause; computed when it is read, since it searches the pods of the namespace. */
  readonly detail: string;
  /** How it is accepted until a date; null if it is not. */
  readonly suppressed: Suppressed | null;
}

/** More Services are only counted. */
const mostRows = 50;

/** Lines that end with an empty one; none without such Services. `markOf`: see report.ts. */
export function formatUnserved(
  services: readonly UnservedRow[],
  markOf: (service: UnservedRow) => string,
  options: RenderOptions,
): string[] {
  if (services.length === 0) return [];
  const rows = services.slice(0, mostRows).flatMap((service) => {
    const { namespace, name, reason, detail, suppressed } = service;
    const head = [`${namespace}/${name}`, reason, markOf(service) || []].flat().join('  ');
    const why = suppressed === null ? [] : [`suppressed ${suppressedText(suppressed)}`];
    return [
      `  ${escapeInvisible(head)}`,
      ...[...why, detail].flatMap((text) => wrap(text, '    ', '    ', options)),
    ];
  });
  const more = services.length - mostRows;
  const title = `Services without usable endpoints: ${services.length}`;
  const rest = more > 0 ? [`  and ${more} more: -o json lists all`] : [];
  return [paint(options.colour, 'bold', title), ...rows, ...rest, ''];
}
