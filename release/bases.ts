// Prints the base images of a Containerfile with the digests that they have now, one NAME=IMAGE a
// line: `node release/bases.ts Containerfile`. Docker asks the registry.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** Names and images of the ARG lines before the first stage. */
export function basesOf(containerfile: string): (readonly [name: string, image: string])[] {
  const [head = ''] = containerfile.split(/^FROM /m);
  const lines = head.matchAll(/^ARG (\w+_IMAGE)=(\S+)$/gm);
  return [...lines].map(([, name = '', image = '']) => [name, image] as const);
}

if (import.meta.main) {
  const [path = 'Containerfile'] = process.argv.slice(2);
  for (const [name, image] of basesOf(readFileSync(path, 'utf8'))) {
    const inspect = ['buildx', 'imagetools', 'inspect', image, '--format', '{{.Manifest.Digest}}'];
    const digest = execFileSync('docker', inspect, { encoding: 'utf8' }).trim();
    process.stdout.write(`${name}=${image}@${digest}\n`);
  }
}
