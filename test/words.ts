// Counts words that the project's writing rules replace. `npm run words` prints how often each
// occurs in src, and what to write instead; test/tidy.test.ts uses the same list.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Words that no comment, test name or decision record contains, and what to write instead. */
export const bannedWords: Readonly<Record<string, string>> = {
  told: 'reported, encoded',
  'tell|tells': 'report, encode, show',
  'stand|stands|stood|standing': 'exists, is present',
  held: 'cached, stored',
  'hear|hears|heard': 'receive',
  'judge|judges|judged': 'compare, evaluate, audit',
  'whoever|whom': 'the client, the controller',
  'nobody|somebody': 'no client, another client',
  'anew|afresh': 'again',
  mend: 'fix',
  'fate|fates': 'outcome',
  'affair|fares|bury|breathe|ripe|lest|hence|thereof|owed': 'name the mechanism',
  'but for': 'except',
  besides: 'also',
  'so many': 'this many, too many',
  'of which': 'whose, or a new sentence',
  'be it|though it be|to and fro': 'leave out',
};

/** Matches any banned word. */
export const bannedPattern = new RegExp(`\\b(?:${Object.keys(bannedWords).join('|')})\\b`, 'gi');

/** How often each entry of the list occurs in the TypeScript files of a folder. */
export function countBannedWords(folder: string): ReadonlyMap<string, number> {
  const texts = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => readFileSync(join(folder, path), 'utf8'));
  return new Map(
    Object.keys(bannedWords).map((words) => {
      const pattern = new RegExp(`\\b(?:${words})\\b`, 'gi');
      return [words, texts.reduce((sum, text) => sum + (text.match(pattern)?.length ?? 0), 0)];
    }),
  );
}

if (import.meta.main) {
  const folder = process.argv[2] ?? join(import.meta.dirname, '../src');
  let sum = 0;
  for (const [words, count] of countBannedWords(folder)) {
    sum += count;
    console.log(`${String(count).padStart(5)}  ${words} → ${bannedWords[words] ?? ''}`);
  }
  console.log(`${String(sum).padStart(5)}  in all`);
}
