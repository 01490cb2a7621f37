// Cuts metadata.managedFields out of the text of an object before it is parsed.
//
// They say who has written which field, they are a third to a half of the bytes of an object, and
// nobody here reads them; but JSON.parse would build all of it. Finding their end costs a sixth of
// that. (A reviver is no way: it is called after everything has been built.)

const name = '"managedFields"';

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * The JSON text of an object with an empty list for its managedFields; the same text where it has
 * none. Within a string the name would have a backslash before its quotes, so the first that has
 * not is the name of a field; no object of the API has another of that name before it.
 */
export function withoutManagedFields(text: string): string {
  const at = text.indexOf(name);
  if (at < 0 || !isName(text, at)) return text;
  const separator = skipSpace(text, at + name.length);
  if (text.charCodeAt(separator) !== colon) return text;
  const bracket = skipSpace(text, separator + 1);
  if (text.charCodeAt(bracket) !== openBracket) return text;
  const end = endOfList(text, bracket + 1);
  return end < 0 ? text : text.slice(0, bracket + 1) + text.slice(end);
}

/** A name follows a comma or brace; a value of this text would follow a colon. */
function isName(text: string, at: number): boolean {
  let before = at - 1;
  while (isSpace(text.charCodeAt(before))) before--;
  const byte = text.charCodeAt(before);
  return byte === comma || byte === openBrace;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

const isSpace = (code: number): boolean =>
  code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

/** Where the bracket stands that closes the list; negative where nothing does. */
function endOfList(text: string, from: number): number {
  const { length } = text;
  let depth = 1;
  for (let at = from; at < length; at++) {
    const code = text.charCodeAt(at);
    if (code === quote) {
      for (at++; at < length && text.charCodeAt(at) !== quote; at++) {
        if (text.charCodeAt(at) === backslash) at++;
      }
    } else if (code === openBracket || code === openBrace) depth++;
    else if (code === closeBracket || code === closeBrace) {
      depth--;
      if (depth === 0) return at;
    }
  }
  return -1;
}
