// Texts that name or count objects.

import type { ServicePort } from '../../model/objects.ts';

/** `1 pod`, `2 pods`. */
export const counted = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

/** The first few names: `a, b, c and 4 more`. */
export function fewOf(names: readonly string[], few = 3): string {
  const rest = names.length - few;
  const first = names.slice(0, few).join(', ');
  return rest > 0 ? `${first} and ${rest} more` : first;
}

export const servicePortText = ({ name, port, protocol }: ServicePort): string =>
  `${name === '' ? '' : `${name} `}${port}/${protocol}`;
