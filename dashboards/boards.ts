// The boards that there are.

import type { Board } from './board.ts';
import { endpointslices } from './endpointslices.ts';
import { lag } from './lag.ts';
import { nodes } from './nodes.ts';
import { overview } from './overview.ts';

export const boards: readonly Board[] = [overview, lag, endpointslices, nodes];
