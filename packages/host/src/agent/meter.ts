import type { ModelUse } from './model/model.js';

/** Watches what is spent on models: asked before every call, told after it. */
export interface Meter {
  /** Throws to keep the call from being made. */
  check(): Promise<void>;
  add(use: ModelUse): void;
}

/** For calls that nobody accounts for. */
export const unmetered: Meter = { check: async () => undefined, add: () => undefined };
