// The `incidents` command: lists the incidents of a time span, of a history or of a recording. A
// history answers from its search index. Exit codes: 0, or 2 without an answer.

import { createAuditor } from '../auditor/auditor.ts';
import { listIncidents } from '../auditor/incident-queries.ts';
import { replay } from '../auditor/replay.ts';
import { openFolder } from '../history/files.ts';
import { latestMoment } from '../history/reader.ts';
import { openIndex } from '../history/search-index.ts';
import { formatCount, formatJson, formatTime } from '../output/text/format.ts';
import { renderIncidents } from '../output/text/incidents.ts';
import { recordingOf } from './replay.ts';
import { colour, problemLog, screenWidth } from './shared/console.ts';
import { type HistoryFlags, lossReporter } from './shared/history.ts';
import { type AuditFlags, auditorOptions, type InputFlags, onlyInput } from './shared/options.ts';

export interface IncidentsOptions extends AuditFlags, InputFlags, Pick<HistoryFlags, 'history'> {
  /** Seconds before the end. */
  readonly since: number;
  readonly output: 'text' | 'json';
}

/** Prints the incidents of the last `since` seconds of a history, or of a recording. */
export async function printIncidents(
  options: IncidentsOptions,
  files: readonly string[] = [],
): Promise<0> {
  const { history, since, output } = options;
  const source = history ?? onlyInput(options, files);
  const list =
    history === undefined ? await ofRecording(source, options) : await ofHistory(source, since);
  const document = { format: 1, kind: 'incidents', source, ...list };
  process.stdout.write(output === 'json' ? formatJson(document) : render(list));
  return 0;
}

/** The incidents that were open at some time from `from` to `to`, the oldest first. */
type IncidentList = Awaited<ReturnType<typeof ofHistory>>;

async function ofHistory(source: string, since: number) {
  const onLoss = lossReporter(source, problemLog().onProblem);
  const to = await latestMoment(openFolder(source), onLoss);
  const index = await openIndex(source, onLoss);
  try {
    return { from: to - since, to, incidents: index.incidents(to - since, to) };
  } finally {
    index.close();
  }
}

async function ofRecording(source: string, options: IncidentsOptions): Promise<IncidentList> {
  const { onProblem } = problemLog();
  const auditor = createAuditor(auditorOptions(options, onProblem));
  const entries = await recordingOf(source, auditor, onProblem);
  await replay(auditor, entries, { speed: Infinity, until: null });
  const to = auditor.now() ?? 0;
  const from = to - options.since;
  const incidents = listIncidents(auditor, { resolved: true })
    .filter(({ resolvedAt }) => (resolvedAt ?? to) >= from)
    .sort((a, b) => (a.openedAt ?? 0) - (b.openedAt ?? 0));
  return { from, to, incidents };
}

function render({ from, to, incidents }: IncidentList): string {
  const width = screenWidth() ?? 120;
  const count = formatCount(incidents.length, 'incident');
  const lines = renderIncidents(incidents, to, { colour, width });
  return [`${count} from ${formatTime(from)} to ${formatTime(to)}`, '', ...lines].join('\n');
}
