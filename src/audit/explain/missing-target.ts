// What is said of something that does not exist: that it does not, and which names may have been
// meant, since a name that is spelt nearly the same, or the same in another namespace, is why most
// people find nothing.

import type { Key } from '../../model/objects.ts';
import type { AuditContext } from '../service/cache.ts';
import type { Explanation, ExplainTarget } from './explanation.ts';
import { isNear } from './near-miss.ts';
import type { Reason } from './reason.ts';
import { fewOf, reason } from './reason.ts';

/** The explanation of what is not there. */
export const notFound = (
  subject: ExplainTarget,
  answer: string,
  reasons: readonly Reason[],
): Explanation => ({
  subject,
  found: false,
  verdict: null,
  severity: null,
  answer,
  change: null,
  reasons,
});

/** Names that may have been meant: the same in another namespace, or spelt nearly the same. */
function meant(key: Key, keys: Iterable<Key>): Reason[] {
  const [namespace = '', name = ''] = key.split('/');
  const same: Key[] = [];
  const here: Key[] = [];
  const elsewhere: Key[] = [];
  for (const other of keys) {
    const slash = other.indexOf('/');
    const [space, own] = [other.slice(0, slash), other.slice(slash + 1)];
    if (own === name) same.push(other);
    else if (isNear(own, name)) (space === namespace ? here : elsewhere).push(other);
  }
  const found = [same, here, elsewhere].find((some) => some.length > 0) ?? [];
  return found.length === 0 ? [] : [reason('note', `there is ${fewOf(found.sort())}`)];
}

/** Why an object (of namespace `*`: of any) is not there, and which may have been meant. */
export function missing(
  context: AuditContext,
  subject: ExplainTarget,
  kind: 'Service' | 'Pod',
  key: Key,
): Explanation {
  const { listers } = context;
  const resource = kind === 'Pod' ? 'pods' : 'services';
  if (!listers.knows(resource)) {
    return notFound(subject, `${kind} ${key} is not known: the input has no ${kind}s`, []);
  }
  const reasons = meant(key, listers[resource].keys());
  const [namespace = '', name = ''] = key.split('/');
  if (namespace === '*') {
    return notFound(subject, `${kind} ${name} does not exist in any namespace`, reasons);
  }
  const empty = [...listers.services.values()].every((one) => one.namespace !== namespace);
  if (empty) reasons.push(reason('note', `there is no Service in namespace ${namespace}`));
  return notFound(subject, `${kind} ${key} does not exist`, reasons);
}
