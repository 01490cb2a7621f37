// The state of a Service in a checkpoint, without names. Each text is redacted by the field that it
// belongs to, never by its form: a name can look like a number, a port or a word of Kubernetes. The
// texts must be those that the audit makes of the redacted objects, so that clocks continue.

import type { Code } from '../audit/finding/catalogue.ts';
import type { SavedService } from '../audit/service/checkpoint.ts';
import type { Redactor } from '../cluster/files/redactor.ts';

type Saved = SavedService['items'][string][number];

/** `namespace/name`. */
export const redactKey = (key: string, { name }: Redactor): string =>
  key.split('/').map(name).join('/');

/** The state with hashes: what the objects show again is left out. */
export function redactState(saved: SavedService, redactor: Redactor): SavedService {
  const redactItem = <T extends Saved | Saved['lesser'][number]>(unit: string, item: T): T => {
    const { code, subject, ...rest } = item.difference;
    const { severity, quiet, cause, hindrance, likelyCause } = rest;
    const hidden = { object: '', field: '', expected: null, actual: null, address: null };
    const causes = { severity, quiet, cause, hindrance, likelyCause, pod: null, fields: null };
    const shown = redactSubject(unit, code, subject, redactor);
    const difference = { code, subject: shown, ...hidden, ...causes };
    const changes = item.changes.map((change) => redactChange(change, redactor));
    const lesser = item.lesser.map((it) => redactItem(unit, it));
    return { ...item, difference, changes, lesser };
  };
  const items = Object.entries(saved.items).map(([key, unit]) => [
    redactUnit(key, redactor),
    unit.map((item) => redactItem(key, item)),
  ]);
  return { ...saved, items: Object.fromEntries(items) as SavedService['items'] };
}

/** The key of a unit: an output, alone or with an address, or `slice` and a name. */
function redactUnit(key: string, { name, address }: Redactor): string {
  const [kind = '', ...rest] = key.split(' ');
  if (rest.length === 0) return kind;
  const what = rest.join(' ');
  return `${kind} ${kind === 'slice' ? name(what) : address(what)}`;
}

/** Of outputs as a whole, whose subjects have no names. */
const plainSubjects: ReadonlySet<Code> = new Set<Code>([
  'slice-placeholder-missing',
  'slice-hints-different',
  'hints-absent',
]);

/** Those that end with a uid. */
const uidSubjects: ReadonlySet<Code> = new Set<Code>([
  'endpoints-address-unexpected',
  'slice-endpoint-unexpected',
  'pod-without-node',
  'address-shared',
]);

function redactSubject(unit: string, code: Code, subject: string, redactor: Redactor): string {
  const { name, address } = redactor;
  if (unit === 'endpoints') return subject;
  if (!unit.includes(' ') && plainSubjects.has(code)) return subject;
  if (code === 'object-near-size-limit') {
    const [kind = '', key = ''] = subject.split(' ');
    return `${kind} ${redactKey(key, redactor)}`;
  }
  if (code === 'slice-hints-different') {
    const [addresses = '', pod = ''] = subject.split(' of pod ');
    return `${addresses.split(', ').map(address).join(', ')} of pod ${name(pod)}`;
  }
  if (unit === 'mirrored') return redactMirrored(subject, redactor);
  const words = subject.split(' ');
  const uid = uidSubjects.has(code) ? words.pop() : undefined;
  return [...words.map(name), ...(uid === undefined ? [] : [uid])].join(' ');
}

/** `SLICE`, `SLICE ADDRESS||NAMESPACE/NAME` or `ADDRESS TYPE PORTS`. */
function redactMirrored(subject: string, redactor: Redactor): string {
  const { name, address } = redactor;
  const [first = '', ...rest] = subject.split(' ');
  if (rest.length === 0) return name(first);
  const entry = /^([^|]*)\|\|(.*)$/.exec(rest[0] ?? '');
  if (entry !== null) {
    const [, ip = '', target = ''] = entry;
    return `${name(first)} ${address(ip)}||${redactKey(target, redactor)}`;
  }
  const [type = '', ...ports] = rest;
  return `${address(first)} ${type} ${redactPorts(ports.join(' '), redactor)}`;
}

/** A key of ports (portMapKey), in the order of the redacted names. */
function redactPorts(key: string, { port, protocol }: Redactor): string {
  if (key === '') return '';
  const quoted = (hide: (text: string) => string, text = '-'): string =>
    text === '-' ? text : JSON.stringify(hide(text.slice(1, -1)));
  return key
    .split(',')
    .map((portKey) => {
      const [portName, number = '', transport = '', app] = portKey.split(' ');
      return `${quoted(port, portName)} ${number} ${transport} ${quoted(protocol, app)}`;
    })
    .sort()
    .join(',');
}

type SavedChange = Saved['changes'][number];

const labelField = 'metadata.labels ';

function redactChange(change: SavedChange, redactor: Redactor): SavedChange {
  const { name, labels } = redactor;
  const { field } = change;
  const key = field.startsWith(labelField) ? field.slice(labelField.length) : null;
  const [shownKey = ''] = key === null ? [] : Object.keys(labels({ [key]: '' }));
  const hide = (text: string | null): string | null => {
    if (text === null) return null;
    if (key === null) return (valuesOf[field] ?? name)(text, redactor);
    return Object.values(labels({ [key]: text }))[0] ?? '';
  };
  return {
    ...change,
    namespace: name(change.namespace),
    name: name(change.name),
    field: key === null ? field : `${labelField}${shownKey}`,
    from: hide(change.from),
    to: hide(change.to),
  };
}

type RedactText = (text: string, redactor: Redactor) => string;

const plain: RedactText = (text) => text;
const addresses: RedactText = (text, { address }) => text.split(', ').map(address).join(', ');

/** `KEY=VALUE`, joined by commas. What a cut at the end has left without a value is a name. */
const pairs =
  (redactPair: (key: string, value: string, redactor: Redactor) => string): RedactText =>
  (text, redactor) =>
    text.replace(/[^, ]+/g, (part) => {
      const at = part.indexOf('=');
      if (at < 0) return redactor.name(part);
      return redactPair(part.slice(0, at), part.slice(at + 1), redactor);
    });

/** How the values of a field are redacted (audit/service/object-changes.ts); else as a name. */
const valuesOf: Readonly<Record<string, RedactText>> = {
  'spec.selector': pairs((key, value, { labels }) => {
    const [[shown, hidden] = ['', '']] = Object.entries(labels({ [key]: value }));
    return `${shown}=${hidden}`;
  }),
  ports: pairs((key, value, { port, protocol }) => {
    const isName = key === 'name' || (key === 'targetPort' && !/^\d+$/.test(value));
    if (isName) return `${key}=${port(value)}`;
    return `${key}=${key === 'appProtocol' ? protocol(value) : value}`;
  }),
  'spec.clusterIP': addresses,
  'status.podIPs': addresses,
  'spec.type': plain,
  'spec.ipFamilies': plain,
  'spec.publishNotReadyAddresses': plain,
  'spec.trafficDistribution': plain,
  'metadata.annotations topology-mode Auto': plain,
  'status.phase Failed or Succeeded': plain,
  'status.conditions Ready': plain,
  'metadata.deletionTimestamp': plain,
  'metadata.uid': plain,
  'metadata.resourceVersion': plain,
};
