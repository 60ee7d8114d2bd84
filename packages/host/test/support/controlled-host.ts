import { afterAll, beforeAll } from 'vitest';
import { type ControlledModel, startControlledModel } from './controlled-model.js';
import { startHost, type TestHost, type TestHostOptions } from './host.js';
import { TestUser } from './user.js';

/** A host with a controlled model, and one of its users, during the surrounding file. */
export interface ControlledHost {
  readonly model: ControlledModel;
  readonly host: TestHost;
  readonly alice: TestUser;
}

export function useControlledHost(options: TestHostOptions = {}): ControlledHost {
  const parts: { model?: ControlledModel; host?: TestHost; alice?: TestUser } = {};
  beforeAll(async () => {
    parts.model = await startControlledModel();
    parts.host = await startHost({ ...options, env: { ...parts.model.env, ...options.env } });
    parts.alice = new TestUser(parts.host);
  });
  afterAll(async () => {
    await parts.host?.close();
    parts.model?.close();
  });
  return parts as ControlledHost;
}
