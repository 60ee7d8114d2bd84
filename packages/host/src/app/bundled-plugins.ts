import { a2a } from '@sibyl/plugin-a2a';
import { agUi } from '@sibyl/plugin-ag-ui';
import { aiSdkUi } from '@sibyl/plugin-ai-sdk-ui';
import { browserTools } from '@sibyl/plugin-browser-tools';
import { chain } from '@sibyl/plugin-chain';
import { chatPage } from '@sibyl/plugin-chat-page';
import { claims } from '@sibyl/plugin-claims';
import {
  type CreditGrant,
  credits,
  type GrantOutcome,
  grantCredits as grantCreditsIn,
} from '@sibyl/plugin-credits';
import type { OraclePlugin } from '@sibyl/plugin-kit';
import { matrix } from '@sibyl/plugin-matrix';
import { mcp } from '@sibyl/plugin-mcp';
import { mcpServer } from '@sibyl/plugin-mcp-server';
import { memory } from '@sibyl/plugin-memory';
import { openaiApi } from '@sibyl/plugin-openai-api';
import { schedules } from '@sibyl/plugin-schedules';
import { slack } from '@sibyl/plugin-slack';
import { userPreferences } from '@sibyl/plugin-user-preferences';
import { withPluginTables } from './operator-tasks.js';

/** The plugins that come with the host. No other file of the host names a plugin. */
export const bundledPlugins: readonly OraclePlugin[] = [
  userPreferences,
  memory,
  matrix,
  mcp,
  chain,
  browserTools,
  agUi,
  chatPage,
  credits,
  claims,
  slack,
  schedules,
  openaiApi,
  aiSdkUi,
  mcpServer,
  a2a,
];

/** Gives a user credit, in the store that the environment names. */
export const grantCredits = (grant: CreditGrant): Promise<GrantOutcome> =>
  withPluginTables(credits, (tables) => grantCreditsIn(tables, grant));
