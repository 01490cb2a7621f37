// The file of --config: values of flags as YAML, under the names of the flags. A value beside the
// commands applies to each command that has the flag, a value below a command to that command only.
// Flags of the command line override both.
//
// Every scalar is read as its text, so that a value is parsed as on the command line: `1.30` is a
// release and not the number 1.3.

import type { Command, Option } from 'commander';
import { type Document, isMap, isScalar } from 'yaml';
import * as z from 'zod/mini';

import { type Problem, problemAt, problemText, valueText } from '../../cluster/decode/problem.ts';
import { listForm } from './flag-values.ts';
import { isDeprecated } from './options.ts';
import { UsageError } from './process.ts';
import { readYamlFile, withTextErrors } from './yaml-file.ts';

type Values = Readonly<Record<string, unknown>>;

/** The name of the flag without dashes, as the file has it. */
const nameOf = ({ long }: Option): string => long?.slice(2) ?? '';

const settable = ({ options }: Command): readonly Option[] =>
  options.filter((option) => nameOf(option) !== 'config' && !isDeprecated(option));

function valueOf(option: Option): z.ZodMiniType {
  if (!option.required && !option.optional) {
    const either = z.enum(['true', 'false'], { error: 'Expected true or false' });
    return z.pipe(
      either,
      z.transform((text) => text === 'true'),
    );
  }
  const form = listForm(option);
  const text = z.string({ error: 'Expected a text' });
  const either = { error: 'Expected a text or a list of texts' };
  const list = z.array(z.string()).check(z.minLength(1, either));
  const texts: z.ZodMiniType<string | string[]> =
    form === null ? text : z.union([text, list], either);
  const parse = (value: string, before?: unknown): unknown =>
    option.parseArg?.(value, before) ?? value;
  const parsed = z.transform((value: string | string[], { issues }) => {
    const values = typeof value === 'string' ? [value] : value;
    try {
      if (form === 'commas') return parse(values.join(','));
      return values.reduce<unknown>((before, text) => parse(text, before), undefined);
    } catch (error) {
      const message = error instanceof Error ? error.message.replace(/\.$/, '') : String(error);
      issues.push({ code: 'custom', message, input: value });
      return z.NEVER;
    }
  });
  return z.pipe(texts, parsed);
}

const schemaOf = (options: readonly Option[]) =>
  Object.fromEntries(options.map((option) => [nameOf(option), z.optional(valueOf(option))]));

/** Of the whole file. A flag that commands parse in different ways is parsed as `command` does. */
function fileSchema(commands: readonly Command[], command: Command) {
  const section = { error: 'Expected flags and their values' };
  const sections = commands.map((owner) => [
    owner.name(),
    z.optional(z.strictObject(schemaOf(settable(owner)), section)),
  ]);
  const flags = schemaOf([...commands, command].flatMap(settable));
  return z.strictObject({ ...flags, ...Object.fromEntries(sections) }, section);
}

/** The line of a field, from 1; `null` if the file has none. */
function lineOf(
  document: Document,
  lineAt: (offset: number) => number,
  path: readonly PropertyKey[],
) {
  const map = path.length === 1 ? document.contents : document.getIn(path.slice(0, -1), true);
  const key = isMap(map) && map.items.find((pair) => String(pair.key) === path.at(-1))?.key;
  const offset = isScalar(key) ? key.range?.[0] : document.contents?.range?.[0];
  return offset === undefined ? null : lineAt(offset);
}

/** Names and parsed values of the flags of `command`. Throws a UsageError that names each error. */
const readValues = (path: string, commands: readonly Command[], command: Command): Values =>
  readYamlFile(path, 'failsafe', (document, lineAt) => {
    const problems: Problem[] = [];
    const raw: unknown = withTextErrors(path, (): unknown => document.toJS()) ?? {};
    const read = fileSchema(commands, command).safeParse(raw === '' ? {} : raw);
    for (const issue of read.error?.issues ?? []) {
      const unknown = issue.code === 'unrecognized_keys' ? issue.keys : null;
      const [first] = issue.path;
      const owner = first === undefined ? 'the commands have' : `${String(first)} has`;
      const message = unknown === null ? issue.message : `Expected a flag that ${owner}`;
      for (const field of unknown?.map((key) => [...issue.path, key]) ?? [issue.path]) {
        const line = lineOf(document, lineAt, field);
        const value = field.reduce<unknown>(
          (at, key) => (at as Values | undefined)?.[String(key)],
          raw,
        );
        const details = { field: field.join('.') || null, value: valueText(value) };
        problems.push(problemAt(path, line, message, details));
      }
    }
    problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
    if (problems.length > 0) throw new UsageError(problems.map(problemText).join('\n'));
    const { [command.name()]: own, ...shared } = read.data ?? {};
    return { ...shared, ...(own as Values | undefined) };
  });

/**
 * Sets the options of a command that its command line does not set. Throws a UsageError if the file
 * has an unknown flag or a wrong value, an Error of the system if it cannot be read.
 */
export function applyConfigFile(
  path: string,
  commands: readonly Command[],
  command: Command,
): void {
  const values = readValues(path, commands, command);
  const isGiven = (name: string): boolean => command.getOptionValueSource(name) === 'cli';
  for (const option of settable(command)) {
    const value = values[nameOf(option)];
    const name = option.attributeName();
    if (value === undefined || isGiven(name)) continue;
    if (name === 'namespace' && isGiven('allNamespaces')) continue;
    command.setOptionValueWithSource(name, option.negate ? !value : value, 'config');
  }
}
