// Completion of the command line, for shells and for kubectl, which runs
// `kubectl_complete-audit_endpoints`. Names of a cluster are not completed: that would take time.

import type { Command } from 'commander';

const flagsOf = ({ options }: Command): string[] =>
  options.flatMap(({ long, short }) => [long ?? [], short ?? []].flat()).concat('--help', '-h');

/** Values of an option; `null` if it has no value. */
function valuesOf(command: Command, flag: string): readonly string[] | null {
  const option = command.options.find(({ long, short }) => flag === long || flag === short);
  if (option === undefined || option.isBoolean()) return null;
  // The values in a description such as `one of table, wide, json` or `text or json`.
  const list = /^(?:one of )?((?:[a-z]+(?:, | or ))+[a-z]+)$/.exec(option.description)?.[1];
  return option.argChoices ?? list?.split(/, | or /) ?? [];
}

/** Completions of the last word. The first word is the one after the program's name. */
export function completionsOf(program: Command, words: readonly string[]): string[] {
  const typed = words.at(-1) ?? '';
  const before = words.slice(0, -1);
  const name = before.find((word) => !word.startsWith('-'));
  const command = program.commands.find((candidate) => candidate.name() === name);
  const starting = (all: readonly string[]): string[] =>
    all.filter((word) => word.startsWith(typed)).sort();
  if (command === undefined) {
    const names = program.commands.map((each) => each.name());
    const visible = names.filter((word) => !word.startsWith('_'));
    return starting(typed.startsWith('-') ? flagsOf(program) : visible);
  }
  const values = valuesOf(command, before.at(-1) ?? '');
  if (values !== null) return starting(values);
  if (typed.startsWith('-')) return starting(flagsOf(command));
  return command.name() === 'explain' ? starting(['service/', 'pod/', 'node/', 'ip/']) : [];
}

const scripts = {
  bash: (program: string): string => `_endpoint_auditor() {
  local IFS=$'\\n'
  COMPREPLY=($(${program} __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _endpoint_auditor ${program}
`,
  zsh: (program: string): string => `#compdef ${program}
_endpoint_auditor() {
  local -a found
  found=(\${(f)"$(${program} __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( \${#found} )); then compadd -- $found; else _files; fi
}
compdef _endpoint_auditor ${program}
`,
  fish: (program: string): string =>
    `complete -c ${program} -a '(${program} __complete -- ` +
    `(commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
} as const;

export type Shell = keyof typeof scripts;

export const shells = Object.keys(scripts) as Shell[];

/** The completion script of a shell. */
export const completionScript = (shell: Shell, program: string): string => scripts[shell](program);
