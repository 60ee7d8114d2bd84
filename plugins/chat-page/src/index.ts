import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type DynamicModule, Module } from '@nestjs/common';
import { definePlugin, type SetupContext, sharedKey } from '@sibyl/plugin-kit';
import { listPageFiles, PAGE, type Page, PageController } from './page.js';

@Module({})
class ChatPageModule {}

const FOLDER = fileURLToPath(new URL('dist', import.meta.resolve('@sibyl/web/package.json')));

const MATRIX_BASE_URL = sharedKey<string>('matrixBaseUrl');
const PAGE_PATH = sharedKey<string>('page');

function readPage({ shared, logger }: SetupContext): Page {
  const isBuilt = existsSync(FOLDER);
  if (!isBuilt) logger.warn({}, 'the chat page is not built; run "npm run build"');
  const matrixBaseUrl = shared.get(MATRIX_BASE_URL);
  return {
    files: isBuilt ? listPageFiles(FOLDER) : new Map(),
    settings: matrixBaseUrl === undefined ? {} : { matrixBaseUrl },
  };
}

/** Serves the chat page at `/app`. */
export const chatPage = definePlugin({
  name: 'chat-page',
  version: '0.1.0',
  manifest: {
    title: 'Chat page',
    summary: 'A page to talk to the oracle, at /app.',
    whenToUse: ['never by the agent: it is for people'],
    category: 'core',
    visibility: 'silent',
  },
  softDependsOn: ['matrix'],
  setup: readPage,
  getSharedState: () => PAGE_PATH.share('/app/'),
  getAuthExcludedRoutes: () => ['/app', '/app/(.*)'],
  getNestModules: ({ services: page }): DynamicModule[] => [
    {
      module: ChatPageModule,
      controllers: [PageController],
      providers: [{ provide: PAGE, useValue: page }],
    },
  ],
});
