// The options of an auditor in a test: a recording of the whole cluster, problems are thrown.

import type { AuditorOptions } from '../src/auditor/auditor.ts';
import { wholeCluster } from '../src/model/scope.ts';
import { throwProblem } from './problems.ts';

const ignore = (): void => undefined;

export const auditorDefaults: AuditorOptions = {
  settle: 30,
  release: null,
  maxEndpointsPerSlice: 100,
  scope: wholeCluster,
  live: false,
  onOpen: ignore,
  onResolve: ignore,
  onJourney: ignore,
  onProblem: throwProblem,
};
