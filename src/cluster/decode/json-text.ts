// Parses JSON of input that may be hostile.

/** Shorter texts need little memory, however many levels they have. */
const unchecked = 1024 * 1024;

const mostLevels = 1000;

const [quote, backslash] = [0x22, 0x5c];

/**
 * JSON.parse for large texts of unknown origin. V8 needs 40 bytes for each level, so that 64 MiB of
 * `[` would need 2.7 GB.
 * @throws SyntaxError if the text is no JSON, or has more than 1 MiB and 1,000 levels.
 */
export function parseJson(text: string): unknown {
  if (text.length > unchecked) checkLevels(text);
  return JSON.parse(text);
}

function checkLevels(text: string): void {
  let levels = 0;
  let isQuoted = false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) isQuoted = !isQuoted;
    else if (isQuoted) at += code === backslash ? 1 : 0;
    // `[` and `{`, `]` and `}` differ by the bit 32.
    else if ((code | 32) === 0x7b) levels++;
    else if ((code | 32) === 0x7d) levels--;
    if (levels > mostLevels) throw new SyntaxError('More than 1,000 levels of JSON');
  }
}
