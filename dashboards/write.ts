// Writes the boards as Grafana reads them beside this file: `npm run dashboards`. A test holds that
// this changes nothing.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { boards } from './boards.ts';
import { dashboardOf } from './board.ts';

for (const board of boards) {
  const path = join(import.meta.dirname, `${board.name}.json`);
  writeFileSync(path, `${JSON.stringify(dashboardOf(board), null, 2)}\n`);
}
