import { afterAll, beforeAll, beforeEach } from 'vitest';
import { type ControlledModel, startControlledModel } from './controlled-model.js';
import { startHost, type TestHost, type TestHostOptions } from './host.js';
import { TestUser } from './user.js';

/** A host with a controlled model during the surrounding file, and a user, who is another one in each test. */
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
  // A test that is repeated starts as it did the first time, and one that failed leaves no calls to the next.
  beforeEach(() => {
    parts.model?.discard();
    if (parts.host) parts.alice = new TestUser(parts.host);
  });
  afterAll(async () => {
    await parts.host?.close();
    parts.model?.close();
  });
  return parts as ControlledHost;
}
