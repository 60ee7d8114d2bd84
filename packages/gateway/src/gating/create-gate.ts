import { ApiKeyGate } from './api-key-gate.js';
import type { Gate } from './caller.js';
import type { UcanGateParts } from './create-ucan-gate.js';
import { openGate } from './open-gate.js';

/** The gate the configuration asks for, and the DID it is known by, if any. */
export async function createGate(parts: UcanGateParts): Promise<{ gate: Gate; did?: string }> {
  const { auth, apiKeys } = parts.config.gating;
  switch (auth) {
    case 'none':
      return { gate: openGate };
    case 'api-key':
      return { gate: new ApiKeyGate(apiKeys) };
    case 'ucan': {
      // Loaded where it is needed, since it would slow every other start.
      const { createUcanGate } = await import('./create-ucan-gate.js');
      return createUcanGate(parts);
    }
    default:
      return auth satisfies never;
  }
}
