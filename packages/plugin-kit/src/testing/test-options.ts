import type { SafeFetch } from '@sibyl/safe-fetch';
import type { ModelRole } from '../model-call.js';
import type { OraclePlugin } from '../plugin.js';
import type { ClientCalls } from '../turn-context.js';
import type { WantedCapability } from '../turn-ucan.js';

/** What a plugin asks a model. */
export interface ModelQuestion {
  readonly role: ModelRole;
  readonly system?: string;
  readonly prompt: string;
}

/** A call that a plugin makes to the user's page. */
export type PageCall = Omit<Parameters<ClientCalls['call']>[0], 'signal'>;

/** The world around the plugins of a test; what is not given refuses to be used. */
export interface TestRuntimeOptions {
  /** All of them, those they depend on included. */
  readonly plugins: readonly OraclePlugin[];
  /** Variables, as the environment would hold them. */
  readonly config?: Readonly<Record<string, string>>;
  /** Answers outgoing requests. */
  readonly fetch?: SafeFetch;
  /** Answers what plugins ask models, and the messages they bring from elsewhere. */
  readonly answer?: (question: ModelQuestion) => string | Promise<string>;
  /** Answers calls to the user's page. */
  readonly page?: (call: PageCall) => unknown;
  /** What users have delegated to the oracle. */
  readonly delegated?: readonly WantedCapability[];
}

/** Whom nobody has named otherwise. */
export const TEST_USER = 'did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH';
export const TEST_ORACLE = 'did:key:z6MktwupdmLXVVqTzCw4i46r4uGyosGXRnR3XjN4Zq7oMMsw';
