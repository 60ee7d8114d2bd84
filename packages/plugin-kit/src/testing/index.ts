export type { ContractOptions, ContractTest } from './contract/trial.js';
export { contractTests } from './contract-tests.js';
export {
  type ModelQuestion,
  type PageCall,
  TEST_ORACLE,
  TEST_USER,
  type TestRuntimeOptions,
} from './test-options.js';
export type { TestRoute } from './test-routes.js';
export {
  createTestRuntime,
  type TestAnswer,
  type TestRequestParts,
  type TestRuntime,
} from './test-runtime.js';
export type { TestSubAgent, TestTurn } from './test-turn.js';
export { testInvocation } from './test-ucan.js';
export type { LogLine } from './test-world.js';
export type { TurnParts } from './turn-parts.js';
