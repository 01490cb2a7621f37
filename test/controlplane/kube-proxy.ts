// The binary of the real kube-proxy, built by Go from the module beside this file, once, and kept
// where the binaries of the control plane are.

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { goProgram } from '../processes.ts';
import type { Version } from './controlplane.ts';
import { cacheOf } from './controlplane.ts';

const run = promisify(execFile);

/** Its path; takes minutes when it is not built yet. There is one of the newest version only. */
export async function kubeProxyOf(version: Version): Promise<string> {
  const path = join(cacheOf(version), 'kube-proxy');
  if (existsSync(path)) return path;
  const stamp = `-X k8s.io/component-base/version.gitVersion=${version}`;
  const flags = ['-buildvcs=false', '-ldflags', stamp, '-o', path];
  const cwd = join(import.meta.dirname, 'kube-proxy');
  await run(goProgram(), ['build', ...flags, 'k8s.io/kubernetes/cmd/kube-proxy'], { cwd });
  return path;
}
