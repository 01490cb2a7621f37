// Moments that people write.

const dateTime = /^\d{4}-\d\d-\d\dT/;
const zone = /T.*(?:[zZ]|[+-]\d\d:?\d\d)$/;

/**
 * Unix seconds of RFC 3339; NaN for another text. Without a zone it is UTC as all that is shown:
 * `Date.parse` takes the zone of the process.
 */
export const parseDateTime = (text: string): number =>
  dateTime.test(text) ? Date.parse(zone.test(text) ? text : `${text}Z`) / 1000 : Number.NaN;
