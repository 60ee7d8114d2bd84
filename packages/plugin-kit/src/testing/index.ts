export { ModelResponse } from '../middleware.js';
export type { ContractOptions, ContractTest } from './contract-tests.js';
export { contractTests } from './contract-tests.js';
export type { TestRoute } from './test-app.js';
export type { LogLine } from './test-host.js';
export {
  type ModelPrompt,
  type PageCall,
  TEST_ORACLE,
  TEST_USER,
  type TestRuntimeOptions,
  testInvocation,
} from './test-host.js';
export {
  createTestRuntime,
  type TestRequest,
  type TestResponse,
  type TestRuntime,
  type TestTable,
} from './test-runtime.js';
export type { TestSubAgent, TestTurn, TestTurnOptions } from './test-turn.js';
