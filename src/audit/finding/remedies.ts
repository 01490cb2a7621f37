// The remedy of a finding: what to do, and shell commands with the names of its objects. No command
// deletes a pod of a workload or a Service.

import { catalogue, type Finding } from './catalogue.ts';
import { causes } from './causes.ts';
import type { RemedySteps } from './remedy-steps.ts';

export interface Remedy {
  readonly text: string;
  /** Shell commands in their order; empty if there is none, or a name is not valid. */
  readonly commands: readonly string[];
  /** What to do on a managed control plane or distribution; `null` if the same. */
  readonly managed: string | null;
}

/** What has the names that commands need. */
type Named = Pick<Finding, 'namespace' | 'service' | 'node' | 'differences'>;

type RemediedFinding = Named & Pick<Finding, 'code' | 'cause'>;

/** Commands for at most this many slices, pods or addresses. */
const mostObjects = 5;

/** Names and addresses that the API server accepts. A shell reads them as one plain word. */
const safeName = /^[a-z0-9](?:[a-z0-9.:-]*[a-z0-9])?$/i;

const stepsOf = ({ code, cause }: RemediedFinding): RemedySteps => {
  // A label of the Service does not make the mirroring controller sync. Orphaned objects have none.
  const isLabelled = catalogue[code].output !== 'mirrored' && !code.endsWith('-orphaned');
  if (cause === null || (cause === 'hand-edited' && !isLabelled)) return catalogue[code];
  return causes[cause];
};

/** The values of each placeholder. */
const values: Readonly<Record<string, (finding: Named) => readonly string[]>> = {
  namespace: ({ namespace }) => [namespace],
  service: ({ service }) => [service],
  node: ({ node }) => (node === null ? [] : [node]),
  slice: ({ namespace, differences }) => {
    const prefix = `EndpointSlice ${namespace}/`;
    const slices = differences.filter(({ object }) => object.startsWith(prefix));
    return slices.map(({ object }) => object.slice(prefix.length));
  },
  pod: ({ differences }) =>
    differences.flatMap(({ pod }) => pod?.slice(pod.indexOf('/') + 1) ?? []),
  address: ({ differences }) => differences.flatMap(({ address }) => address ?? []),
};

/** The commands of a template, one for each value of its placeholders; none if one is not valid. */
function fillIn(template: string, finding: Named): string[] {
  const [placeholder, name = ''] = /\{(\w+)\}/.exec(template) ?? [];
  if (placeholder === undefined) return [template];
  return [...new Set(values[name]?.(finding))]
    .slice(0, mostObjects)
    .filter((value) => safeName.test(value))
    .flatMap((value) => fillIn(template.replaceAll(placeholder, value), finding));
}

/** The remedy of the cause, or of the code if no cause is known. */
export const remedyOf = (finding: RemediedFinding): Remedy => fillRemedy(stepsOf(finding), finding);

/** A remedy with the names of a finding, or of an object. */
export const fillRemedy = ({ remedy, commands, managed }: RemedySteps, named: Named): Remedy => ({
  text: remedy,
  commands: commands.flatMap((it) => fillIn(it, named)),
  managed,
});
