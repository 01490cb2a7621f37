// A bundle of a scenario, written by the command and read by others.

import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, describe, expect, test, vi } from 'vitest';

import { bundle, type BundleOptions } from '../../src/commands/bundle.ts';
import { replayFile } from '../../src/commands/replay.ts';
import { UsageError } from '../../src/commands/shared/process.ts';
import { printed, usual } from '../live-cluster.ts';
import { parseScenario } from '../scenarios/parse.ts';
import { linesOf, scenarioFolder } from '../verify/verify.ts';

const folder = mkdtempSync(join(tmpdir(), 'endpoint-auditor-'));

afterEach(() => {
  vi.restoreAllMocks();
});

/** The recording of a scenario. */
function recordingOf(name: string): string {
  const text = readFileSync(join(scenarioFolder, name), 'utf8');
  const path = join(folder, `${name}.ndjson`);
  const lines = [...linesOf(parseScenario(name, text))].map((line) => `${JSON.stringify(line)}\n`);
  writeFileSync(path, lines.join(''));
  return path;
}

const input = recordingOf('endpoints-miss-one-pod-and-keep-another.txt');

async function bundleText(subject: string, more: Partial<BundleOptions> = {}) {
  const output = printed();
  const code = await bundle(subject, { ...usual, input: [input], ...more });
  vi.restoreAllMocks();
  return { code, out: output.out(), err: output.err() };
}

interface Report {
  readonly findings: readonly { readonly code: string; readonly openedAt: number }[];
  readonly incidents: readonly { readonly id: string }[];
}

async function reportOf(path: string, settle: number): Promise<Report> {
  const output = printed();
  const options = { ...usual, settle, speed: Infinity, output: 'json' } as const;
  await replayFile(path, options);
  vi.restoreAllMocks();
  return JSON.parse(output.out()) as Report;
}

const findingsOf = ({ findings }: Report) => findings.map(({ code, openedAt }) => [code, openedAt]);

describe('a bundle', () => {
  test('has the findings of the recording, and its own settings', async () => {
    const settle = 12;
    const { code, out, err } = await bundleText('service/web', { settle });
    expect(code).toBe(0);
    expect(err).toContain('--redact');
    const path = join(folder, 'web.ndjson');
    writeFileSync(path, out);
    const want = await reportOf(input, settle);
    expect(want.findings.length).toBeGreaterThan(0);
    expect(findingsOf(await reportOf(path, 3600))).toEqual(findingsOf(want));
  });

  test('of an incident has the namespaces of its Services', async () => {
    const settle = 12;
    const [incident] = (await reportOf(input, settle)).incidents;
    const { out } = await bundleText(incident?.id ?? '', { settle });
    expect(out).toBe((await bundleText('service/web', { settle })).out);
  });

  test('without names has none, and names none on stderr', async () => {
    const { out, err } = await bundleText('service/web', { redactPorts: true });
    expect(err).toBe('');
    expect(out).not.toMatch(/"web|web"|"web-|"http"/);
  });

  test('of what does not exist is an error', async () => {
    await expect(bundleText('service/none')).rejects.toThrow('There is no service/none');
    await expect(bundleText('none')).rejects.toThrow('There is no incident "none"');
    await expect(bundleText('service/web', { from: 9e9, to: 1 })).rejects.toThrow(
      '--from is after',
    );
  });

  test('with a wrong subject is wrong usage, before the input is read', async () => {
    const wrong = ['pod/web', 'web/shop', 'service/', 'service/a/b/c', 'node/a', 'ip/1'];
    for (const subject of wrong) {
      const missing = { input: [join(folder, 'missing.ndjson')] };
      await expect(bundleText(subject, missing), subject).rejects.toThrow(UsageError);
    }
  });
});
