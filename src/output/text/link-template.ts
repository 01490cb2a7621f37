// Templates of links to other programs, such as Grafana and Headlamp.

/** Values that a template may contain, as `{service}`. */
const fields = ['cluster', 'namespace', 'service', 'node', 'pod', 'metric'] as const;

export type LinkValues = Readonly<Partial<Record<(typeof fields)[number], string | null>>>;

export interface LinkTemplate {
  readonly name: string;
  readonly url: string;
}

const placeholder = /\{([^{}]*)\}/g;

/** Parses `NAME=URL`; undefined for another scheme than http and https, or an unknown field. */
export function parseLinkTemplate(text: string): LinkTemplate | undefined {
  const [, name, url] = /^([^=]+)=(https?:\/\/\S+)$/.exec(text) ?? [];
  if (name === undefined || url === undefined) return undefined;
  const used = Array.from(url.matchAll(placeholder), ([, field = '']) => field);
  const isKnown = used.every((field) => (fields as readonly string[]).includes(field));
  return isKnown && URL.canParse(url.replace(placeholder, 'x')) ? { name, url } : undefined;
}

/** The address with encoded values; null if the template needs a value that is absent. */
export function expandLink({ url }: LinkTemplate, values: LinkValues): string | null {
  const used = Array.from(url.matchAll(placeholder), ([, field = '']) => field);
  const valueOf = (field: string): string => values[field as keyof LinkValues] ?? '';
  if (used.some((field) => valueOf(field) === '')) return null;
  return url.replace(placeholder, (_, field: string) => encodeURIComponent(valueOf(field)));
}
