// A tag for template literals that make HTML. It escapes values that are not HTML themselves. So a
// name from the cluster is never more than text, and has no invisible characters (text/format.ts).

import { escapeMarkup } from '../text/format.ts';

/** Markup that other markup may contain as it is. */
export interface Html {
  readonly html: string;
}

/** A list is joined; `null` and `false` are empty. */
export type MarkupValue = string | number | false | Html | null | readonly MarkupValue[];

function render(value: MarkupValue): string {
  if (value === null || value === false) return '';
  if (typeof value !== 'object') return escapeMarkup(String(value));
  return 'html' in value ? value.html : value.map(render).join('');
}

/** Makes HTML. A line break after a value is omitted, so that long lines can be wrapped. */
export const markup = (texts: TemplateStringsArray, ...values: readonly MarkupValue[]): Html => ({
  html: texts
    .map((text, index) =>
      index === 0 ? text : render(values[index - 1] ?? null) + text.replace(/^\n/, ''),
    )
    .join(''),
});
