// Archives whose bytes depend on their content only: sorted names, no owners, one time.

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

/** The time of all files, Unix seconds: that of the files in archives of npm. */
const modified = 499_162_500;

/** Writes a .tar.gz of `names`, files or folders in `folder`, with GNU tar. */
export function writeArchive(path: string, folder: string, names: readonly string[]): void {
  const flags = [
    ...['--create', '--format=ustar', '--sort=name', '--owner=0', '--group=0', '--numeric-owner'],
    ...['--mode=u=rwX,go=rX', `--mtime=@${modified}`, '--directory', folder],
  ];
  const content = execFileSync('tar', [...flags, ...names], { maxBuffer: 2 ** 30 });
  writeFileSync(path, gzipSync(content, { level: 9 }));
}
