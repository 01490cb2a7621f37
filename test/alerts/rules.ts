// The rules of alerts/, as Prometheus reads them.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { parse } from 'yaml';

import { catalogue } from '../../src/audit/finding/catalogue.ts';
import { groupedBy } from '../promql.ts';

export const folder = join(import.meta.dirname, '../../alerts');

export interface Rule {
  readonly alert?: string;
  readonly record?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

/** Names of the files, without the folder. */
export const ruleFiles = readdirSync(folder).filter((name) => name.endsWith('.yaml'));

export const readRules = (name: string): RuleFile =>
  parse(readFileSync(join(folder, name), 'utf8')) as RuleFile;

const all = ruleFiles.flatMap((name) => readRules(name).groups.flatMap(({ rules }) => rules));

export const alerts = all.filter(({ alert }) => alert !== undefined);
export const records = all.filter(({ record }) => record !== undefined);

/** What recording rules make, with the labels that their grouping leaves; any values. */
export const recorded: ReadonlyMap<string, Readonly<Record<string, readonly string[]>>> = new Map(
  records.map(({ record = '', expr }) => [
    record,
    Object.fromEntries(groupedBy(expr).map((label) => [label, []])),
  ]),
);

/** The codes of findings that an alert is about; none: it is about something else. */
export function codesOf({ expr }: Rule): string[] {
  const matcher = /findings\{\s*code=~?"(?<pattern>.*?)"(?:,\s*code!="(?<except>.*?)")?/.exec(expr);
  if (matcher === null) return [];
  const { pattern = '', except } = matcher.groups ?? {};
  const all = new RegExp(`^(?:${pattern})$`);
  return Object.keys(catalogue).filter((code) => all.test(code) && code !== except);
}
