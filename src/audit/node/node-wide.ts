// Separates differences that one fault of a whole node produces from those that it leaves over. A
// fault of the node has one effect on a class of packets: those with a property from one origin to
// one kind of frontend. At least 3 ports of several Services, and half of the class, must show it.
// What has too few packets to show it follows what has more: small classes, single rules of other
// programs, and other origins of the same packets.

import { getOrInsert } from '../../model/collections.ts';
import type { PacketOutcome } from '../../rules/walk/walk.ts';
import type { ExpectedOutcome } from '../../model/proxy-config.ts';
import type { Deviation } from './compare-packet.ts';
import { ends, isKubernetesRule, rounding, translationStep } from './compare-packet.ts';
import type {
  Coverage,
  CoveredProperty,
  PacketClass,
  PacketDifference,
  PacketDifferences,
} from './packet-difference.ts';
import { packetClass } from './packet-difference.ts';

/** Whether a rule of another program causes it. */
export const isForeign = ({ kind, step }: Deviation): boolean =>
  kind !== 'missing' && kind !== 'not masqueraded' && step !== null && !isKubernetesRule(step);

const ofKind: Readonly<Partial<Record<Deviation['kind'], readonly CoveredProperty[]>>> = {
  'not masqueraded': ['masqueraded'],
  masqueraded: ['not masqueraded'],
  affinity: ['affinity'],
};

export const isTranslated = (outcome: PacketOutcome): boolean =>
  ends.some((end) => outcome[end].probability > 0 && translationStep(outcome[end]) !== null);

/**
 * Returns the effect of a deviation, without its endpoint, and the properties of packets that it
 * may depend on. An endpoint that gets no packets, since those are stopped or sent elsewhere, has
 * the effect of that. A packet that must be translated and is not has the effect of that, whatever
 * filters do with it after routing.
 */
export function effectsOn(
  want: ExpectedOutcome,
  outcome: PacketOutcome,
  deviations: readonly Deviation[],
) {
  const endpoints = want.kind === 'endpoints' ? want.endpoints : new Map<string, boolean>();
  const isUntranslated = want.kind === 'endpoints' && !isTranslated(outcome);
  // What the rules do with a packet that they do not drop differs by Service.
  const isKept =
    want.kind === 'drop' && outcome.drop.probability + outcome.pass.probability <= rounding;
  const stops = ends.filter((end) => end !== want.kind && outcome[end].probability > rounding);
  const effectOf = ({ kind, step }: Deviation): string => {
    if (kind === 'not rejected' || kind === 'not dropped') {
      const [sent] = deviations;
      if (stops.length === 0 && sent && sent.kind !== kind) return effectOf(sent);
      return isKept ? 'not dropped' : stops.join();
    }
    if (step !== null && isForeign({ kind, step, endpoint: null })) return step.rule.text;
    if (isKept) return 'not dropped';
    const isStop = kind === 'reject' || kind === 'drop' || kind === 'pass';
    const isEarly = step?.base.base.hook === 'prerouting';
    return isStop && isUntranslated && !isEarly ? 'untranslated' : kind;
  };
  const diverted = deviations.filter((it) => !/^missing|share|masq|affinity/.test(it.kind));
  // Beside unknown rules, an end may be no deviation.
  const effects = new Set(diverted.length > 0 ? diverted.map(effectOf) : stops);
  const shareOf = (name: string): number => outcome.destinations.get(name)?.probability ?? 0;
  const isEven = [...endpoints.keys()].every((name) => {
    return shareOf(name) <= rounding || Math.abs(shareOf(name) - 1 / endpoints.size) <= rounding;
  });
  const [missing = 'missing'] = isEven && effects.size === 1 ? effects : [];
  const areLost = (is: boolean): boolean =>
    [...endpoints].every(
      ([name, masqueraded]) => shareOf(name) > rounding === (masqueraded !== is),
    );
  const isExact = endpoints.size > 0 && !isUntranslated;
  const properties: CoveredProperty[] = [
    want.kind === 'reject' ? 'rejected' : want.kind === 'drop' ? 'dropped' : 'endpoints',
    ...(isExact && areLost(true) ? (['masqueraded'] as const) : []),
    ...(isExact && areLost(false) ? (['not masqueraded'] as const) : []),
  ];
  return (deviation: Deviation) => ({
    effect: deviation.kind === 'missing' ? missing : effectOf(deviation),
    properties: ofKind[deviation.kind] ?? properties,
  });
}

export const placeOf = ({ port, frontend }: PacketDifference): string => port?.name ?? frontend;

export const familyOf = ({ frontend }: PacketDifference): 'IPv4' | 'IPv6' =>
  frontend.startsWith('[') ? 'IPv6' : 'IPv4';

export const packetClassOf = (it: PacketDifference, property: CoveredProperty): PacketClass =>
  packetClass({ property, kind: it.kind, family: familyOf(it), origin: it.origin });

const least = 3;

/** A value for each effect on a class of packets, which is created when it is first asked for. */
function createByEffect<V>(create: (effect: string, packets: PacketClass) => V) {
  const values = new Map<string, Map<PacketClass, V>>();
  return (effect: string, packets: PacketClass): V => {
    const ofEffect = getOrInsert(values, effect, () => new Map<PacketClass, V>());
    return getOrInsert(ofEffect, packets, () => create(effect, packets));
  };
}

/** Returns a function that says whether a fault of the whole node produces a difference. */
export function nodeWideEffects(differences: PacketDifferences, coverage: Coverage) {
  const real = differences.filter(({ port, harmless }) => port !== null && !harmless);
  const portsWith = createByEffect(() => new Set<string>());
  for (const it of real) {
    for (const property of it.properties) {
      const ports = portsWith(it.effect, packetClassOf(it, property));
      ports.add(`${placeOf(it)} ${it.port?.protocol ?? ''}`);
    }
  }
  const sizeOf = (packets: PacketClass): number => coverage.get(packets) ?? 0;
  const isWideIn = (effect: string, packets: PacketClass): boolean => {
    const ports = portsWith(effect, packets);
    const services = new Set([...ports].map((port) => port.split(':')[0]));
    return services.size > 1 && ports.size >= Math.max(least, 0.5 * sizeOf(packets));
  };
  const isComplete = (effect: string, packets: PacketClass): boolean =>
    portsWith(effect, packets).size >= sizeOf(packets);
  const classes = [...coverage.keys()];
  const large = classes.filter((packets) => sizeOf(packets) >= least);
  const follows = (effect: string, packets: PacketClass): boolean => {
    if (sizeOf(packets) >= least || !isComplete(effect, packets)) return false;
    const sets = alikeClasses(large, packets).filter((alike) => alike.length > 0);
    if (sets.some((alike) => alike.every((other) => isWideIn(effect, other)))) return true;
    // Nothing is stopped any more: few ports of each class, but all of all.
    const stops = classes.filter((other) => isStop(other) && other.family === packets.family);
    const ports = stops.flatMap((other) => [...portsWith(effect, other)]);
    const isAll = isStop(packets) && stops.every((other) => isComplete(effect, other));
    return isAll && new Set(ports).size >= least;
  };
  const isWide = createByEffect((...on) => isWideIn(...on) || follows(...on));
  const isWideAt = (it: PacketDifference): boolean =>
    it.properties.some((property) => isWide(it.effect, packetClassOf(it, property)));
  const wide = real.filter(isWideAt);
  const rules = new Set(wide.map(({ effect, rule }) => (effect === rule ? rule : null)));
  const alike = new Set(wide.flatMap(effectsAtFrontend));
  return (it: PacketDifference): boolean =>
    isWideAt(it) || rules.has(it.effect) || effectsAtFrontend(it).some((key) => alike.has(key));
}

const itself = 'the node itself';
const nodePort = 'node port';

const effectsAtFrontend = ({ properties, origin, frontend, effect }: PacketDifference): string[] =>
  properties
    .filter((property) => property.endsWith('masqueraded') && origin !== itself)
    .map((property) => `${frontend} ${effect} ${property}`);

/** Sets of classes that are alike: each may show what becomes of a smaller one. */
function alikeClasses(large: readonly PacketClass[], small: PacketClass): PacketClass[][] {
  const { property, kind, family, origin } = small;
  const near = large.filter((it) => (it.origin === itself) === (origin === itself));
  const related = near.filter((it) => it.property === property || (isStop(it) && isStop(small)));
  const sameKind = related.filter((it) => it.kind === kind && it.family === family);
  const alike = near.filter((it) => it.property === property && it.family === family);
  const same = alike.filter((it) => it.origin === origin);
  // One map or chain has all addresses of Services, and another one the node ports.
  const byAddress = kind === nodePort ? [] : same.filter((it) => it.kind !== nodePort);
  return [sameKind, byAddress, same.length > 0 ? same : alike, alike.length > 0 ? [] : related];
}

const isStop = ({ property }: PacketClass): boolean =>
  property === 'rejected' || property === 'dropped';
