// The file tree of an image, made without a container engine and run as a pod would be: the last
// stage of a Containerfile says what is copied where, who runs it and what; its base is taken from
// this machine. The tree is the root directory of the process, read-only, with the files that are
// mounted into the pod. Needs root.

import type { ChildProcess } from 'node:child_process';
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { root } from './files.ts';

interface Image {
  readonly copies: readonly (readonly [from: string, to: string])[];
  readonly user: string;
  readonly entrypoint: readonly string[];
}

function imageOf(containerfile: string): Image {
  const text = readFileSync(join(root, containerfile), 'utf8');
  const last = text.slice(text.lastIndexOf('\nFROM '));
  const copies = [...last.matchAll(/^COPY --from=build (\S+) (\S+)$/gm)];
  const user = /^USER (.*)$/m.exec(last)?.[1] ?? '';
  const entrypoint = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(last)?.[1] ?? '[]') as string[];
  return { copies: copies.map(([, from = '', to = '']) => [from, to]), user, entrypoint };
}

/** The libraries of a program, as its loader finds them. */
function librariesOf(program: string): string[] {
  const text = execFileSync('ldd', [program], { encoding: 'utf8' });
  return [...text.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path);
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to, { recursive: true, dereference: true });
}

const node = '/nodejs/bin/node';

export interface Pod {
  readonly containerfile: 'Containerfile' | 'Containerfile.agent';
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Texts by path in the container. */
  readonly mounted: Readonly<Record<string, string>>;
  /** Capabilities that root keeps. */
  readonly capabilities: readonly string[];
}

/**
 * Starts a pod; `folder` becomes its root directory. It is in a network namespace where one is
 * named. What it prints is shown.
 */
export function startPod(folder: string, pod: Pod, space?: string): ChildProcess {
  const { copies, user, entrypoint } = imageOf(pod.containerfile);
  for (const [from, to] of [['/usr/local/bin/node', node] as const, ...copies]) {
    // What the stage before has built is there already.
    const built = from.startsWith('/src/') ? join(root, from.slice('/src/'.length)) : null;
    copy(built ?? process.execPath, join(folder, to));
  }
  for (const [path, text] of Object.entries(pod.mounted)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  for (const name of ['proc', 'dev']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'dev/null'), '');
  const isDebian = pod.containerfile === 'Containerfile.agent';
  if (isDebian) {
    mkdirSync(join(folder, 'usr'));
    for (const name of ['bin', 'sbin', 'lib', 'lib64'])
      symlinkSync(`usr/${name}`, join(folder, name));
  } else {
    for (const path of librariesOf(process.execPath)) copy(path, join(folder, path));
  }
  const mounts = [
    'mount --bind "$0" "$0"',
    ...(isDebian ? ['mount --bind -o ro /usr "$0/usr"'] : []),
    'mount -t proc proc "$0/proc"',
    'mount --bind /dev/null "$0/dev/null"',
    'mount -o remount,bind,ro "$0"',
  ];
  const kept = ['-all', ...pod.capabilities.map((name) => `+${name.toLowerCase()}`)].join(',');
  const bounded = ['/usr/bin/setpriv', '--no-new-privs', '--inh-caps=-all'];
  const command = [
    ...(isDebian ? [...bounded, `--bounding-set=${kept}`] : []),
    ...entrypoint,
    ...pod.args,
  ];
  const script = `${mounts.join(' && ')} && exec chroot --userspec=${user} "$0" "$@"`;
  const options = ['--mount', '--propagation', 'private', 'sh', '-c', script, folder, ...command];
  const inside = space === undefined ? [] : ['ip', 'netns', 'exec', space];
  const [program = '', ...args] = [...inside, 'unshare', ...options];
  return spawn(program, args, {
    // Runtimes set HOME to that of the user, or to the root.
    env: {
      HOME: '/',
      PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      ...pod.env,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}
