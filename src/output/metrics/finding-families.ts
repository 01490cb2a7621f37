// The metric families that count findings. Those of single Services and nodes have a limit: owners
// above it share series with empty names, so that the sum of the series is always the number of
// findings. An alert on them misses none.

import { catalogue, type Code, type Finding, severities } from '../../audit/finding/catalogue.ts';
import { isUnsuppressed, unservedWord } from '../../audit/finding/suppressions.ts';
import { causes } from '../../audit/finding/causes.ts';
import { getOrInsert, recordOf } from '../../model/collections.ts';
import { familiesOf, keysOf, type Sample, type SampleLabels } from './exposition.ts';
import { namedIncidents } from './incident-families.ts';
import { countOpened, type MetricsState, type OpenedFindings } from './state.ts';

const { samples } = familiesOf<MetricsState>();

const codes: readonly Code[] = keysOf(catalogue);

/** A sample per code and severity, so that a rate sees the first finding of any of them. */
function samplesPerCode(counts: OpenedFindings): Sample[] {
  return codes.flatMap((code) =>
    severities.map((severity) => {
      return { labels: { code, severity }, value: counts[code]?.[severity] ?? 0 };
    }),
  );
}

export const openFindings = samples(
  'gauge',
  'Open findings that are not suppressed, by code and severity.',
  ({ summary }) => samplesPerCode(summary.findings.filter(isUnsuppressed).reduce(countOpened, {})),
  { code: codes, severity: severities },
);

export const suppressedFindings = samples(
  'gauge',
  'Open findings that a file or an annotation suppresses, by code. code=unserved: Services ' +
    'without usable endpoints. No other family counts them.',
  ({ summary, suppressedServices }) => [
    ...codes.map((code) => {
      const isSuppressed = (it: Finding): boolean => it.code === code && !isUnsuppressed(it);
      return { labels: { code }, value: summary.findings.filter(isSuppressed).length };
    }),
    { labels: { code: unservedWord }, value: suppressedServices },
  ],
  { code: [...codes, unservedWord] },
);

export const openedFindings = samples(
  'counter',
  'Findings opened since the start, by code and by severity at that time. Includes findings ' +
    'that are resolved, without suppressed ones.',
  ({ opened }) => samplesPerCode(opened),
  { code: codes, severity: severities },
);

interface OwnedLabels {
  /** The names of the Service or node; empty strings for a finding without one. */
  readonly owner: SampleLabels;
  readonly rest: SampleLabels;
}

/**
 * Counts open findings by their labels; `labelsOf` returns null for a finding that does not count.
 * Owners with the oldest findings keep their names, up to the limit.
 */
function countByOwner(
  state: MetricsState,
  labelsOf: (finding: Finding) => OwnedLabels | null,
): Sample[] {
  const { summary, incidentOf } = state;
  const { max } = state.perService;
  const named = namedIncidents(state);
  const owners = new Set<string>();
  const counts = new Map<string, { readonly labels: SampleLabels; value: number }>();
  for (const finding of summary.findings.filter(isUnsuppressed)) {
    const found = labelsOf(finding);
    if (found === null) continue;
    const name = Object.values(found.owner).join('/');
    if (owners.size < max) owners.add(name);
    const owner = owners.has(name) ? found.owner : recordOf(keysOf(found.owner), () => '');
    const incident = incidentOf(finding) ?? '';
    const labels = { ...owner, ...found.rest, incident: named.has(incident) ? incident : '' };
    getOrInsert(counts, Object.values(labels).join(' '), () => ({ labels, value: 0 })).value++;
  }
  return [...counts.values()];
}

export const serviceFindings = samples(
  'gauge',
  'Open findings of each Service that are not suppressed, by code, cause, severity and incident. ' +
    'No series without a finding. ' +
    'Series with an empty service count findings without a Service, and those of Services above ' +
    'the limit --metrics-max-services.',
  (state) =>
    countByOwner(state, ({ namespace, service, node, code, cause, severity }) => {
      // A finding about a whole node.
      if (service === '' && node !== null) return null;
      return { owner: { namespace, service }, rest: { code, cause: cause ?? '', severity } };
    }),
  {
    namespace: [],
    service: [],
    code: codes,
    cause: ['', ...keysOf(causes)],
    severity: severities,
    incident: [],
  },
);

export const nodeFindings = samples(
  'gauge',
  'Open findings of each node that are not suppressed, by code, severity and incident. No ' +
    'series without a finding. Series with ' +
    'an empty node count the findings of nodes above the limit --metrics-max-services.',
  (state) =>
    countByOwner(state, ({ node, code, severity }) =>
      node === null ? null : { owner: { node }, rest: { code, severity } },
    ),
  { node: [], code: codes, severity: severities, incident: [] },
);
