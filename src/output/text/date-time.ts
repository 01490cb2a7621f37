// Moments that people write.

const dateTime = /^\d{4}-\d\d-\d\dT/;
const zone = /T.*(?:[zZ]|[+-]\d\d:?\d\d)$/;

/**
 * Unix seconds of RFC 3339; NaN for another text. A time without a zone is UTC, like all times that
 * are shown. `Date.parse` would read it in the zone of the process.
 */
export const parseDateTime = (text: string): number =>
  dateTime.test(text) ? Date.parse(zone.test(text) ? text : `${text}Z`) / 1000 : Number.NaN;
