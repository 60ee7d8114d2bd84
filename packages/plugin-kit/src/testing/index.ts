export type { ContractOptions, ContractTest } from './contract-tests.js';
export { contractTests } from './contract-tests.js';
export type { TestRoute } from './test-app.js';
export type { LogLine } from './test-host.js';
export {
  type ModelQuestion,
  type PageCall,
  TEST_ORACLE,
  TEST_USER,
  type TestRuntimeOptions,
  testInvocation,
} from './test-host.js';
export {
  createTestRuntime,
  type TestAnswer,
  type TestRequestParts,
  type TestRuntime,
} from './test-runtime.js';
export type { TestSubAgent, TestTurn, TurnParts } from './test-turn.js';
